#!/usr/bin/env bash
# Installs the package of the previous version in a new Debian, starts the service as its unit defines, upgrades, removes and purges it. systemd
# does not run there: `systemd-analyze` checks the unit, and the test reads which units the package enables.
#
#   scripts/release/check_debian.sh ROOT BEFORE.deb FILE.deb WORK      in its own namespaces; ROOT: made by debootstrap, not changed
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/release/lib.sh
debian=$(realpath "$1") package_before=$(realpath "$2") package=$(realpath "$3") work=$4

begin
copy_of_root "$debian"
root=$work/root
unit=/usr/lib/systemd/system/tidewire.service
wanted=$root/etc/systemd/system/multi-user.target.wants/tidewire.service
dpkg_in_root() { in_root dpkg --force-unsafe-io --force-confdef --force-confold "$@" </dev/null >"$work/dpkg.out" 2>&1 ||
    fail "dpkg $*: $(cat "$work/dpkg.out")"; }

# Runs the command of ExecStart, with the user, the variables and the umask of the unit.
start() {
    local command user variables
    command=$(sed -n 's/^ExecStart=//p' "$root$unit")
    user=$(sed -n 's/^User=//p' "$root$unit")
    mapfile -t variables < <(sed -n 's/^Environment=//p' "$root$unit")
    # shellcheck disable=SC2086  # The words of a command.
    (umask "$(sed -n 's/^UMask=//p' "$root$unit")" && exec chroot "$root" /usr/bin/setpriv "--reuid=$user" "--regid=$user" --clear-groups \
        --no-new-privs --inh-caps=-all --bounding-set=-all /usr/bin/env -i "${variables[@]}" $command) >>"$log" 2>&1 &
    server=$!
    until_ok in_root tidewire health --config /etc/tidewire/tidewire.toml
    [ "$(awk '/^Uid:/ { print $2 }' "/proc/$server/status")" = "$(in_root id -u "$user")" ] || fail "the server runs as another user"
}

# The previous package gets a lower version number, whatever its number is. Its settings file differs.
version=$(dpkg-deb -f "$package" Version)
dpkg-deb -R "$package_before" "$work/before"
sed -i 's/^Version: .*/Version: 0.0.1/' "$work/before/DEBIAN/control"
sed -i '1i# Settings of an older version.' "$work/before/etc/tidewire/tidewire.toml"
dpkg-deb --root-owner-group -Z none -b "$work/before" "$root/tmp/before.deb" >/dev/null
cp "$package" "$root/tmp/new.deb"

# An administrator has created the group already.
in_root groupadd --system tidewire
dpkg_in_root -i /tmp/before.deb
[ "$(in_root dpkg-query -W -f '${Status} ${Version}' tidewire)" = "install ok installed 0.0.1" ] || fail "not installed"
in_root dpkg -V tidewire >"$work/verify.out" && [ ! -s "$work/verify.out" ] || fail "files differ: $(cat "$work/verify.out")"
for each in "/etc/tidewire 750 root:tidewire" "/etc/tidewire/tidewire.toml 644 root:root" "/var/lib/tidewire 700 tidewire:tidewire" \
    "/usr/bin/tidewire 755 root:root" "$unit 644 root:root"; do
    read -r path mode owner <<<"$each"
    [ "$(in_root stat -c '%a %U:%G' "$path")" = "$mode $owner" ] || fail "$path is $(in_root stat -c '%a %U:%G' "$path")"
done
in_root dpkg-query -W -f '${Conffiles}' tidewire | grep -q "/etc/tidewire/tidewire.toml" || fail "the settings are not a conffile"
[ -L "$wanted" ] || fail "the service is not enabled"
in_root getent passwd tidewire | grep -q ":/usr/sbin/nologin$" || fail "the user can log in"
said=$(in_root systemd-analyze verify --man=no "$unit" 2>&1) || fail "the unit: $said"
! grep tidewire <<<"$said" || fail "the unit: $said"
# The package has the files that the unit refers to. A machine may omit documentation from an installation, so this reads the package.
dpkg-deb --fsys-tarfile "$package" | tar -t >"$work/contents"
sed -n 's/^Documentation=//p' "$root$unit" | tr ' ' '\n' | sed -n 's#^file://##p' >"$work/documents"
[ -s "$work/documents" ] || fail "the unit has no documentation"
while read -r each; do
    grep -qxF ".$each" "$work/contents" || fail "the unit refers to $each, which is not in the package"
done <"$work/documents"
[ -s "$root/usr/share/man/man1/tidewire.1.gz" ] || fail "the man page is missing"
in_root bash -n /usr/share/bash-completion/completions/tidewire || fail "the completions for bash are invalid"
say "the package has the man page and completions"
say "installed: user, directories, unit, settings"

start
publish none "before the upgrade"
stop
# The administrator changes a setting and a mode, adds a certificate, disables the service, and has an older unit.
echo 'slow-log = "3s"' >>"$root/etc/tidewire/tidewire.toml"
touch "$root/etc/tidewire/cert.pem" "$root/etc/tidewire/access.toml"
in_root systemctl disable tidewire.service >/dev/null 2>&1
chmod 755 "$root/etc/tidewire"
cp "$root$unit" "$root/etc/systemd/system/tidewire.service"
dpkg_in_root -i /tmp/new.deb
grep -q "warning: /etc/systemd/system/tidewire.service takes precedence" "$work/dpkg.out" || fail "no warning about a unit in /etc"
rm "$root/etc/systemd/system/tidewire.service"
[ "$(stat -c %a "$root/etc/tidewire")" = 755 ] || fail "the upgrade changed the mode of /etc/tidewire"
[ "$(in_root dpkg-query -W -f '${Version}' tidewire)" = "$version" ] || fail "not upgraded"
grep -q '^slow-log = "3s"$' "$root/etc/tidewire/tidewire.toml" || fail "the upgrade replaced the settings"
[ ! -L "$wanted" ] || fail "the upgrade enabled a service that the administrator had disabled"
start
has_post none "before the upgrade"
publish none "after the upgrade"
stop
say "started with the unit's command and user, and upgraded from 0.0.1 to $version: data and changed settings were kept"

dpkg_in_root -r tidewire
[ ! -e "$root/usr/bin/tidewire" ] || fail "the program is still there"
[ -s "$root/etc/tidewire/tidewire.toml" ] && [ -d "$root/var/lib/tidewire" ] || fail "a removal deleted settings or data"
dpkg_in_root -i /tmp/new.deb
start
has_post none "after the upgrade"
stop
say "removed and installed again: data and settings were kept"

# Keys and TLS, as docs/install.md says.
rm "$root/etc/tidewire/access.toml"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=feeds.example \
    -keyout "$root/tmp/key.pem" -out "$root/tmp/cert.pem" 2>"$work/openssl.err" || fail "$(cat "$work/openssl.err")"
in_root sh -ec "cd /tmp
    (umask 077; tidewire key backend --access /etc/tidewire/access.toml > backend.key)
    chown tidewire /etc/tidewire/access.toml
    install -m 600 -o tidewire cert.pem key.pem /etc/tidewire/
    sed -i -e '/^listen/d' -e '/^# [a-z-]* = /s/^# //' /etc/tidewire/tidewire.toml"
start
key=$(grep -oE '^[A-Za-z0-9_-]{20,}$' "$root/tmp/backend.key")
for each in "$key 200" "wrong 401"; do
    said=$(curl -s -o /dev/null -w '%{http_code}' --cacert "$root/tmp/cert.pem" --resolve feeds.example:8443:127.0.0.2 \
        -H "Authorization: Bearer ${each% *}" https://feeds.example:8443/v1/stats) || true
    [ "$said" = "${each#* }" ] || fail "over TLS the server answers $said, not ${each#* }"
done
[ "$(in_root stat -c '%a %U' /etc/tidewire/access.toml)" = "600 tidewire" ] || fail "others can read the access file"
stop
say "keys and TLS work with the commands of docs/install.md"

# A mount cannot be removed, but must not stop the purge.
mount --bind "$root/var/lib/tidewire" "$root/var/lib/tidewire"
dpkg_in_root -P tidewire
left=$(find "$root/var/lib/tidewire" "$root/etc/tidewire" "$root/usr/share/tidewire" "$root/usr/share/doc/tidewire" "$root$unit" \
    "$root"/etc/systemd/system/*/tidewire.service "$root"/etc/systemd/system/tidewire.service \
    "$root"/var/lib/systemd/deb-systemd-helper-*/tidewire* 2>/dev/null | sed "s#^$root##" | sort) || true
[ "$left" = "$(printf '/etc/tidewire\n/etc/tidewire/cert.pem\n/etc/tidewire/key.pem\n/var/lib/tidewire')" ] || fail "a purge left: $left"
in_root getent passwd tidewire >/dev/null || fail "a purge deleted the user, whose number another user could get"
umount "$root/var/lib/tidewire"
dpkg_in_root -i /tmp/new.deb
dpkg_in_root -P tidewire
[ ! -e "$root/var/lib/tidewire" ] || fail "a purge left the data directory"
say "purged: data, keys and settings are gone; a certificate of the administrator and the user stay"
