#!/usr/bin/env bash
# What the README promises, on the Debian that it promises it for: its two commands are typed by a user who is not root,
# in a clone of this checkout, where nothing is installed but the packages that it names, and Go. It takes root,
# debootstrap, and the network as this machine's apt, Go and npm reach it. Nothing of it is left: the mounts are in a
# namespace of their own, which ends with what is done in it, as do all processes.
set -euo pipefail
cd "$(dirname "$0")/../.."
fail() { echo "failed: $*" >&2; exit 1; }
command -v debootstrap >/dev/null || fail "debootstrap is not installed: apt-get install debootstrap"

packages=$(sed -n 's/^You need Debian .*`apt-get install \([a-z -]*\)`.*/\1/p' README.md)
commands=$(sed -n '/^## Try it/,/^## /s/^\(make [a-z]*\)  *#.*/\1/p' README.md)
[ -n "$packages" ] && [ "$(wc -l <<<"$commands")" = 2 ] || fail "the README's packages and two commands are not found"

root=$(mktemp -d /var/tmp/tenure-bare-XXXXXX)
trap 'rm -rf --one-file-system "$root"' EXIT
chmod 755 "$root"

# The Debian of this machine, from where its apt has it.
sources=$(apt-get indextargets --format 'deb $(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian')
read -r _ mirror suite _ <<<"$sources"
debootstrap --variant=minbase "$suite" "$root" "$mirror"
printf '%s\n' "$sources" >"$root/etc/apt/sources.list"
apt-config dump | grep '^Acquire::' >"$root/etc/apt/apt.conf.d/99-as-outside" || true
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
chroot "$root" apt-get update -q
DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get install -qy --no-install-recommends $packages
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/" # whom this machine trusts
chroot "$root" useradd --create-home --shell /bin/bash dev
git clone --quiet . "$root/home/dev/tenure"
chroot "$root" chown -R dev: /home/dev
mkdir -p "$root/usr/local/go"

{
  for name in GOPROXY GOSUMDB GOPRIVATE GONOPROXY GONOSUMDB GOINSECURE GOFLAGS; do printf 'export %s=%q\n' "$name" "$(go env "$name")"; done
  for name in HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy; do
    [ -z "${!name:-}" ] || printf 'export %s=%q\n' "$name" "${!name}"
  done
  registry=${NPM_CONFIG_REGISTRY:-$(npm config get registry 2>/dev/null || true)}
  [ -z "$registry" ] || printf 'export NPM_CONFIG_REGISTRY=%q\n' "$registry"
  printf 'export PATH=/usr/local/go/bin:/usr/local/bin:/usr/bin:/bin\ncd ~/tenure\nset -ex\n%s\n' "$commands"
  cat <<'left'
set +x
files=$(find / -xdev \( -path /home/dev/.cache -o -path /home/dev/.config/go -o -path /home/dev/go -o -path /home/dev/tenure/bin \) -prune \
  -o -type f -newer ~/typed -print 2>/dev/null || true) # where it may not look, it has written nothing
processes=$(grep -l postgres /proc/[0-9]*/comm 2>/dev/null || true)
[ -z "$files$processes" ] || { printf 'failed: left behind: %s\n' $files $processes; exit 1; }
du -sh ~/.cache/* ~/.config/go ~/go ~/tenure/bin
left
} >"$root/home/dev/typed"

root=$root goroot=$(go env GOROOT) unshare --mount --pid --fork --kill-child bash -ec '
  mount --make-rprivate /
  mount --bind "$goroot" "$root/usr/local/go"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs tmpfs "$root/dev/shm"
  mount -t proc proc "$root/proc"
  chroot --userspec=dev:dev "$root" /usr/bin/env -i HOME=/home/dev USER=dev TERM=dumb bash /home/dev/typed'
