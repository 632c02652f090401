#!/usr/bin/env bash
# Resolves all requirements/*.in at once, for CPython 3.10 to 3.12 on x86-64 Linux, into pinned and hashed *.txt: each has what it adds
# to those that its -r lines name. Pins that are there stay; requirements/compile.sh --upgrade takes the newest of all, and
# requirements/compile.sh --upgrade NAME... the newest of these. PYTORCH_CPU names a wheel of PyTorch's
# build for CPUs, as a file; without it pytorch-cpu.txt stays as it is.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
command -v uv >/dev/null || { echo "compile.sh: no uv here; pip install uv" >&2; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Those that are resolved together; of the others each has a requirement of its own and nothing that it needs.
sets=()
for file in *.in; do
  case $file in
    pip.in | horovod.in | pytorch-cpu.in) ;;
    *) sets+=("${file%.in}") ;;
  esac
done
bases_of() { sed -nE 's/^-r (.*)\.in$/\1/p' "$1.in"; }

pins_that_stay() {
  local but
  but=$(printf '%s|' "${@:2}")
  [ "${1:-}" = --upgrade ] && [ $# = 1 ] ||
    sed -nE 's/^([a-z0-9.-]+==[^\\+]*[^\\ +]) *\\$/\1/p' ./*.txt | grep -vE "^(${but%|})==" | sort -u
}

# uv takes sets that belong together from a project.
{
  cat <<'project'
[project]
name = "requirements"
version = "0"
requires-python = ">=3.10,<3.13"
[tool.uv]
package = false
fork-strategy = "fewest"
environments = ["implementation_name == 'cpython' and platform_machine == 'x86_64' and sys_platform == 'linux'"]
project
  echo 'constraint-dependencies = ['
  pins_that_stay "$@" | sed 's/.*/"&",/'
  echo ']'
  echo '[dependency-groups]'
  for name in "${sets[@]}"; do
    echo "$name = ["
    sed -E "/^(#|\$)/d; s/^-r (.*)\.in\$/{include-group = \"\1\"},/; t; s/.*/'''&''',/" "$name.in"
    echo ']'
  done
} >"$folder/pyproject.toml"
uv lock --quiet --no-build --directory "$folder"

for name in "${sets[@]}"; do
  # Less the conditions that hold for all that this is for.
  uv export --quiet --frozen --directory "$folder" --only-group "$name" --no-header --no-annotate |
    sed -E -e "s/(implementation_name == 'cpython'|platform_machine == 'x86_64'|sys_platform == 'linux')( and )?//g" \
      -e "s/platform_python_implementation != 'PyPy'( and )?//" -e 's/ (and|;) +\\$/ \\/' >"$folder/$name"
done
written() {
  echo "# Written by make requirements."
  bases_of "$1" | sed 's/.*/-r &.txt/'
}
for name in "${sets[@]}"; do
  {
    written "$name"
    # Less what its bases have, line for line.
    bases_of "$name" | sed "s|^|$folder/|" | xargs --no-run-if-empty cat |
      awk '!own { has[$0] = 1; next } /^[a-z]/ { adds = !($0 in has) } adds' - own=1 "$folder/$name"
  } >"$name.txt"
done
for name in pip horovod; do
  {
    written "$name"
    uv pip compile "$name.in" --quiet --no-deps --generate-hashes --no-header --no-annotate
  } >"$name.txt"
done
if [ -n "${PYTORCH_CPU:-}" ]; then
  {
    written pytorch-cpu
    echo "$(sed '/^\(-r\|#\)/d' pytorch-cpu.in) \\"
    echo "    --hash=sha256:$(sha256sum <"$PYTORCH_CPU" | cut -d ' ' -f 1)"
  } >pytorch-cpu.txt
fi
