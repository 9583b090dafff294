#!/usr/bin/env bash
# The process behind the mount is killed while threads work in it, and sometimes again while it opens the pool. Everything
# that had returned must be there when the pool is mounted again, exactly, and the pool must be sound.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
# shellcheck source-path=SCRIPTDIR source=kill.bash
source "$ROOT/tests/mount/kill.bash"
# shellcheck source-path=SCRIPTDIR source=kill-model.bash
source "$ROOT/tests/mount/kill-model.bash"

model_rounds "${VELLUM_ROUNDS:-8}" 256M
printf 'ok %s\n' "$NAME"
