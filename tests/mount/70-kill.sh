#!/usr/bin/env bash
# The mount's process is killed while threads work in the mount, and sometimes again while it opens the pool. After the
# next mount, the effects of all operations that returned must be there exactly, and the pool must be sound.
# shellcheck source-path=SCRIPTDIR source=lib.bash
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
# shellcheck source-path=SCRIPTDIR source=kill.bash
source "$ROOT/tests/mount/kill.bash"
# shellcheck source-path=SCRIPTDIR source=kill-model.bash
source "$ROOT/tests/mount/kill-model.bash"

model_rounds "${VELLUM_ROUNDS:-8}" 256M
printf 'ok %s\n' "$NAME"
