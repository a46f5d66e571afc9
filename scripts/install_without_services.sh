#!/usr/bin/env bash
# Installs Debian packages, and keeps their services from starting: tests start what they need themselves. Needs root.
#
#   scripts/install_without_services.sh PACKAGE...
#
#   POLICY_RC_D  the program that refuses to start services, while packages are installed [default: /usr/sbin/policy-rc.d]
set -euo pipefail
policy=${POLICY_RC_D:-/usr/sbin/policy-rc.d}

# A policy that is there already is somebody else's, and stays. Ours goes however this ends: it would keep all later packages from starting
# their services.
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
fi
echo "installing $*"
apt-get update -qq
# Each package that is unpacked would be three lines; errors are on standard error.
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
