#!/usr/bin/env bash
# fsx: random reads, writes, mapped reads and writes, truncation, holes, allocation and copies, checked byte by byte.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
need fsx

# VELLUM_FSX_SEEDS and VELLUM_FSX_OPERATIONS set the seeds and the number of operations.
read -ra SEEDS <<<"${VELLUM_FSX_SEEDS:-1 2 3 4 5 6 7 8}"
readonly SEEDS OPERATIONS="${VELLUM_FSX_OPERATIONS:-8000}"

# At least a byte, because posix_fallocate of zero bytes is an error on all file systems, which fsx takes for a failure.
cat >"$WORK/all.toml" <<'EOF'
flen = 1048576
[opsize]
max = 131072
min = 1
align = 1
[weights]
close_open = 1
invalidate = 1
mapread = 5
mapwrite = 5
read = 10
write = 10
truncate = 3
fsync = 0.2
fdatasync = 0.2
posix_fallocate = 2
punch_hole = 3
sendfile = 2
posix_fadvise = 1
copy_file_range = 3
EOF
# Small operations around block boundaries.
sed -e 's/^flen = .*/flen = 40000/' -e 's/^max = .*/max = 5000/' "$WORK/all.toml" >"$WORK/small.toml"

verify() { sha256sum --quiet -c "$WORK/sums"; }

begin 256M
for seed in "${SEEDS[@]}"; do
    config=all
    ((seed % 2)) || config=small
    fsx -q -f "$WORK/$config.toml" -N "$OPERATIONS" -S "$seed" -P "$WORK" "file-$seed" >"$WORK/log" 2>&1 ||
        die "seed $seed, $config:"$'\n'"$(tail -n 40 "$WORK/log")"
    say "seed $seed"
done
# Two at once, so that requests are served concurrently.
fsx -q -f "$WORK/all.toml" -N "$OPERATIONS" -S 101 -P "$WORK" side-1 >"$WORK/log-1" 2>&1 &
first=$!
fsx -q -f "$WORK/all.toml" -N "$OPERATIONS" -S 102 -P "$WORK" side-2 >"$WORK/log-2" 2>&1 &
second=$!
wait "$first" || die "side by side: $(tail -n 40 "$WORK/log-1")"
wait "$second" || die "side by side: $(tail -n 40 "$WORK/log-2")"
sha256sum file-* side-* >"$WORK/sums"
finish verify
