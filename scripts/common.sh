# Shared by the scripts of this folder; sourced, not run.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

say() { printf '%s\n' "$*"; }
step() { printf '\n== %s\n' "$*"; }
warn() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() {
  warn "$*"
  exit 1
}

# Prints the comment at the head of the calling script, which is its help.
print_help() { awk 'NR == 1 { next } !/^#/ { exit } { sub(/^# ?/, ""); print }' "$0"; }

# One compiler needs up to 1.2 GB (units that include CAF, with a sanitizer), so memory can allow fewer jobs than there are
# processors. TROUPE_JOBS overrides.
build_jobs() {
  local cpus memory_kb by_memory
  if [[ -n ${TROUPE_JOBS:-} ]]; then
    [[ $TROUPE_JOBS =~ ^[1-9][0-9]*$ ]] || die "TROUPE_JOBS = '$TROUPE_JOBS' is not a number of jobs; use 1 or more"
    say "$TROUPE_JOBS"
    return
  fi
  cpus=$(nproc)
  memory_kb=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
  by_memory=$((${memory_kb:-0} / 1200000))
  if ((by_memory < 1)); then by_memory=1; fi
  say $((cpus < by_memory ? cpus : by_memory))
}

# configure PRESET: quiet unless it fails; what the project itself has to say (lines "-- Troupe: ...") is shown.
configure() {
  local preset=$1 log
  mkdir -p "$root/build/$preset"
  log=$root/build/$preset/configure.log
  if ! (cd "$root" && cmake --preset "$preset") >"$log" 2>&1 </dev/null; then
    cat "$log" >&2
    die "configuring the preset '$preset' failed; is a package missing? 'scripts/setup --check' tells"
  fi
  sed -n 's/^-- Troupe: //p' "$log"
}

# build PRESET [TARGET...]
build() {
  local preset=$1 jobs
  shift
  jobs=$(build_jobs)
  local targets=()
  if (($# > 0)); then targets=(--target "$@"); fi
  (cd "$root" && cmake --build "build/$preset" --parallel "$jobs" "${targets[@]}") </dev/null
}

# Names of the presets that can be configured, one a line.
presets() { (cd "$root" && cmake --list-presets) | sed -n 's/^  "\([^"]*\)".*/\1/p'; }

require_preset() {
  local known
  known=$(presets)
  grep -qxF -- "$1" <<<"$known" || die "there is no preset '$1'; there are: ${known//$'\n'/ }"
}

# Objects of another clone of this project are found again: the cache sees paths relative to the source tree.
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$root}

# C++ sources of the project, relative to its root, one a line: what git tracks, and new files that it does not ignore.
sources() {
  (cd "$root" && git ls-files --cached --others --exclude-standard -- '*.cpp' '*.hpp' '*.cu' '*.cuh') | sort -u |
    while read -r file; do [[ ! -e $root/$file ]] || say "$file"; done
}
