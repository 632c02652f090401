#!/usr/bin/env bash
# Makes a base image of Debian's packages alone, where no container registry can be reached. It needs root and debootstrap.
#   sudo requirements/base_image.sh && make image BASE_IMAGE=rn50-base
# ENGINE (docker) gets it under the name BASE_IMAGE (rn50-base). It trusts the certificates that this machine trusts.
set -euo pipefail

if [ "${1:-}" = "-h" ] || [ "${1:-}" = "--help" ]; then
  sed -n '2,4s/^# \{0,1\}//p' "$0"
  exit 0
fi
[ "$(id -u)" = 0 ] || { echo "base_image.sh: debootstrap needs root; run it with sudo" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "base_image.sh: no debootstrap here; sudo apt-get install debootstrap" >&2; exit 2; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv bookworm "$folder" >"$folder.log" || {
  tail -n 5 "$folder.log" >&2
  exit 1
}
rm "$folder.log"
# A proxy that looks into TLS has its own certificate, which pip takes from the system only where it is told to.
find /usr/local/share/ca-certificates -name '*.crt' -exec cp {} "$folder/usr/local/share/ca-certificates/" \;
chroot "$folder" update-ca-certificates >/dev/null 2>&1
printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >"$folder/etc/pip.conf"
rm -rf "$folder"/var/cache/apt/archives/*.deb "$folder"/var/lib/apt/lists/*
tar -C "$folder" -c . | "${ENGINE:-docker}" import - "${BASE_IMAGE:-rn50-base}"
