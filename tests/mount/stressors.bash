# The file system stressors of stress-ng that tests use.

# Stressors whose operations are all supported by Vellum, or by the kernel on its behalf.
ALL_STRESSORS=(access chdir chmod chown copy-file dentry dir dirdeep dirmany dnotify dup fallocate fcntl filename flock fpunch
    fsize fstat getdent handle hdd inotify iomix ioprio lease link locka lockf lockofd metamix mknod open rename revio seek symlink
    sync-file touch unlink utime xattr)

# These set flags that forbid to remove what a kill leaves.
readonly STRESSORS_OF_FLAGS=(chattr inode-flags)

# What this stress-ng has of them.
STRESSORS=()
help="$(stress-ng --help)"
for stressor in "${ALL_STRESSORS[@]}"; do
    [[ "$help" != *" --$stressor N "* ]] || STRESSORS+=("$stressor")
done
readonly ALL_STRESSORS STRESSORS

# The other file system stressors of stress-ng, and why they are left out.
readonly -A LEFT_OUT=(
    [bind-mount]="mounts directories, and does nothing with files"
    [binderfs]="is about another file system"
    [eventfd]="uses no file"
    [fanotify]="watches every mount of the machine"
    [fiemap]="asks for extents, which Vellum does not tell"
    [file-ioctl]="asks by ioctl for what Vellum has not"
    [io]="syncs every file system of the machine"
    [procfs]="reads /proc"
    [verity]="needs fs-verity, which Vellum has not"
)

# Prints the reason for each file system stressor that is left out.
tell_left_out() {
    local name
    for name in $(stress-ng --class 'filesystem?' 2>&1 | sed -n "s/^class 'filesystem' stressors: //p"); do
        [[ " ${STRESSORS[*]} ${STRESSORS_OF_FLAGS[*]} " == *" $name "* ]] ||
            say "left out: $name, which ${LEFT_OUT[$name]:-is newer than this test}"
    done
}
