#!/usr/bin/env bash
# Installs a built Troupe to a folder of its own, moves that folder (nothing may remember where it was), and builds and runs
# examples/embed against it.
#
# Usage: install_test.sh SOURCE_DIR BUILD_DIR CXX_COMPILER
set -euo pipefail

source_dir=$1
build_dir=$2
compiler=$3

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  printf 'install_test: %s\n' "$*" >&2
  exit 1
}

cmake --install "$build_dir" --prefix "$work/first" >"$work/install.log" || fail "cmake --install failed: $(tail -n 5 "$work/install.log")"
mv "$work/first" "$work/prefix"

for file in bin/troupe include/troupe/messages/ids.hpp include/troupe/scheduling/placement.hpp include/troupe/gpu/all_to_all.hpp \
  include/troupe/cluster/config.hpp; do
  [[ -e $work/prefix/$file ]] || fail "$file was not installed"
done
[[ ! -e $work/prefix/include/troupe/gpu/cpu ]] || fail "headers of a device backend were installed"
if grep -rIlF -e "$build_dir" -e "$source_dir/" -e "$work/first" "$work/prefix"; then
  fail "the files above name the build tree, the source tree or the first prefix"
fi
"$work/prefix/bin/troupe" --version || fail "the installed troupe does not start"

cmake -S "$source_dir/examples/embed" -B "$work/embed" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_BUILD_TYPE=Release -G Ninja
cmake --build "$work/embed"
output=$("$work/embed/embed") || fail "embed ended with an error"
printf '%s\n' "$output"
grep -qF 'rank 3 has experts' <<<"$output" || fail "embed did not print a placement"
