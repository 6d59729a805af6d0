#!/usr/bin/env bash
# Makes sure that the tests of the dashboard find Chromium and its driver.
set -euo pipefail

missing() {
  ! { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null || ! command -v chromedriver >/dev/null
}

missing || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "chromium: installing it"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium chromium-driver
  missing || exit 0
fi
echo "chromium: it or chromedriver is missing; on Debian: sudo apt install chromium chromium-driver" >&2
exit 1
