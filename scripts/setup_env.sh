#!/usr/bin/env bash
# Everything that deskroll needs on this machine: the same as `make setup`, from wherever it is called.
#   bash scripts/setup_env.sh              installs it (Debian or Ubuntu); nothing where nothing is missing
#   bash scripts/setup_env.sh --dry-run    only prints what would be run; any other flag of make's works as well
set -euo pipefail
exec make --directory "$(dirname "${BASH_SOURCE[0]}")/.." setup "$@"
