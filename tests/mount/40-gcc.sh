#!/usr/bin/env bash
# gcc: sources, objects, a static and a shared library and a program in the mount; built in parallel, run from there.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
need gcc ar make

readonly PARTS=60

verify() {
    [[ "$(LD_LIBRARY_PATH=. ./program)" == "$EXPECTED" ]] || die "the program says something else"
    [[ "$(./static-program)" == "$EXPECTED" ]] || die "the static program says something else"
    sha256sum --quiet -c sums
    # Nothing is out of date, because times are kept to the nanosecond.
    make -q all || die "make would build again"
}

begin 512M
printf '#include <stdio.h>\nlong total(void);\nint main(void) { printf("%%ld\\n", total()); return 0; }\n' >main.c
{
    seq -f 'long part%g(void);' "$PARTS"
    echo 'long total(void) { return 0'
    seq -f '+ part%g()' "$PARTS"
    echo '; }'
} >total.c
for part in $(seq "$PARTS"); do
    cat >"part$part.c" <<EOF
#include <stdlib.h>
#include <string.h>
static const long table[] = { $(seq -s , "$part" $((part + 500))) };
static int order(const void *a, const void *b) {
    long x = *(const long *)a, y = *(const long *)b;
    return (x < y) - (x > y);
}
long part$part(void) {
    long copy[sizeof table / sizeof *table], sum = 0;
    memcpy(copy, table, sizeof table);
    qsort(copy, sizeof table / sizeof *table, sizeof *table, order);
    for (unsigned long i = 0; i < sizeof table / sizeof *table; i++) sum += copy[i] * (long)i;
    return sum % 1000003;
}
EOF
done
cat >Makefile <<'EOF'
PARTS := $(patsubst %.c,%.o,$(wildcard part*.c) total.c)
CFLAGS := -O2 -fPIC -pipe
all: program static-program
program: main.o libparts.so
	gcc -o $@ main.o -L. -lparts
static-program: main.o libparts.a
	gcc -static-libgcc -o $@ main.o libparts.a
libparts.so: $(PARTS)
	gcc -shared -o $@ $^
libparts.a: $(PARTS)
	ar rcs $@ $^
EOF
make -s -j 4 all
EXPECTED="$(LD_LIBRARY_PATH=. ./program)"
[[ "$EXPECTED" =~ ^[0-9]+$ ]] || die "the program said '$EXPECTED'"
# The same outside the mount.
mkdir "$WORK/outside"
cp ./*.c Makefile "$WORK/outside"
make -s -j 4 -C "$WORK/outside" all
[[ "$("$WORK/outside/static-program")" == "$EXPECTED" ]] || die "the mount's program counts differently"
cmp libparts.a "$WORK/outside/libparts.a" || die "the same sources made other objects"
cmp libparts.so "$WORK/outside/libparts.so" || die "the same objects made another library"
sha256sum ./*.c ./*.o libparts.* program static-program >sums
verify
finish verify
