#!/usr/bin/env bash
# Builds the wheel for 64-bit Arm on an x86-64 machine, and runs the first example and some tests with it.
#
#   PYTHON=venv/bin/python tools/arm64.sh FOLDER [TEST...]
#
# Arm's instructions are executed by qemu-user, so this shows that the package builds, loads and makes the same files
# there. It is no test on Arm: no processor of that kind, no GPU and no driver takes part.
#
# 1. qemu-aarch64, which is linked statically, out of Debian's package.
# 2. FOLDER/root: Debian 13 for arm64, with its Python 3.13 and g++, unpacked beside this system and not into it.
# 3. The wheel, built in there, and what its extra `test` needs, which PYTHON's pip unpacks: for pip itself the
#    emulation is too slow.
# 4. The first example in there and with PYTHON: header, manifest, PTX, LTO-IR and cubins have to be the same bytes.
# 5. The tests that are named, or three files of them: a start of Python takes 5 to 10 s.
#
# PYTHON is a Python 3.13 of this machine that has pip, and this checkout with its extra `test`.
#
# The machine is left as it is: apt has lists and caches of its own, and the mounts and the registration with
# binfmt_misc are in namespaces that end with each command. That takes Linux 6.7, root, and a Debian or Ubuntu with
# Debian's keyring. A second run goes on with what is in FOLDER. It takes 3 GB, and
# 17 minutes with two cores that others use too, 7 of them for the kernels of both front ends on the CPU device.
set -euo pipefail

folder=$(realpath -m "${1:?usage: tools/arm64.sh FOLDER [TEST...]}")
shift
tests=("${@:-tests/cabi/test_launcher.py tests/link/test_objects.py tests/device/test_kernels.py}")
checkout=$(realpath "$(dirname "$0")/..")
PYTHON=${PYTHON:-python3.13}
site=venv/lib/python3.13/site-packages
"$PYTHON" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 13) and "PYTHON is not Python 3.13, as that of the root is.")'
mkdir -p "$folder"/{root,example,wheels,apt/state/lists/partial,apt/cache/archives/partial}
cd "$folder"

debian() { # debian ARCHITECTURE PACKAGE...: downloads packages of Debian 13 into apt/cache, as if nothing were installed
  cat >apt/conf <<END
APT::Architecture "$1"; APT::Architectures { "$1"; };
APT::Install-Recommends "false"; APT::Sandbox::User "root";
Dir::State "$folder/apt/state"; Dir::State::status "/dev/null"; Dir::Cache "$folder/apt/cache";
Dir::Etc::sourcelist "$folder/apt/sources"; Dir::Etc::sourceparts "/dev/null"; Dir::Etc::preferencesparts "/dev/null";
END
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main" >apt/sources
  APT_CONFIG=apt/conf apt-get update -qq
  APT_CONFIG=apt/conf apt-get install -qq -y --download-only "${@:2}"
}

arm() { # arm COMMAND...: runs a command in the root, which has FOLDER as /folder and the checkout as /checkout
  unshare --user --map-root-user --mount --pid --fork --mount-proc bash -euc '
    folder=$1 checkout=$2 root=$1/root
    mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
    # The first 20 bytes of an ELF file for the machine 0xb7, whatever its type and ABI. F: opened now, before chroot.
    magic="\\x7fELF\\x02\\x01\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02\\x00\\xb7\\x00"
    mask="\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\x00\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xfe\\xff\\xff\\xff"
    echo ":arm64:M::$magic:$mask:$folder/qemu/usr/bin/qemu-aarch64:OCF" >/proc/sys/fs/binfmt_misc/register
    mkdir -p "$root"/{proc,dev,folder,checkout,tmp}
    mount --rbind /proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount --bind "$folder" "$root/folder"
    mount --bind "$checkout" "$root/checkout"
    exec chroot "$root" /usr/bin/env -i PATH=/venv/bin:/usr/bin:/bin HOME=/root LANG=C.UTF-8 \
      PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 NUMBA_PTXLINK_CACHE=0 "${@:3}"' arm "$folder" "$checkout" "$@"
}

unpack() { # unpack TARGET REQUIREMENT...: installs wheels for Arm with the pip of this machine
  local platforms=(--platform linux_aarch64 --platform manylinux2014_aarch64) glibc
  for glibc in {17..41}; do platforms+=(--platform "manylinux_2_${glibc}_aarch64"); done
  "$PYTHON" -m pip install -q --upgrade --no-compile --only-binary :all: "${platforms[@]}" \
    --python-version 3.13 --implementation cp --abi cp313 --abi abi3 --abi none --target "$@"
}

step() { printf '\n== %s (after %d s)\n' "$1" "$SECONDS"; }

step "qemu"
if [ ! -e qemu ]; then
  debian amd64 qemu-user
  dpkg -x apt/cache/archives/qemu-user_*.deb qemu
  rm apt/cache/archives/*.deb
fi

step "Debian 13 for arm64"
if [ ! -e root/unpacked ]; then
  debian arm64 base-files bash binutils coreutils dash diffutils findutils g++ gawk grep make procps python3-dev \
    python3-venv sed tar util-linux
  for package in apt/cache/archives/*.deb; do dpkg -x "$package" root; done
  # Links that packages make when they are configured.
  ln -sf gawk root/usr/bin/awk
  ln -sf gcc root/usr/bin/cc
  ln -sf g++ root/usr/bin/c++
  touch root/unpacked
fi
arm uname -m
arm python3 -m venv --without-pip /venv

step "the wheel"
build_requirements=$("$PYTHON" -c 'import sys, tomllib
print(*tomllib.load(open(sys.argv[1], "rb"))["build-system"]["requires"], "cmake", "ninja", sep="\n")' "$checkout/pyproject.toml")
mapfile -t build_requirements <<<"$build_requirements"
[ -d root/build ] || unpack root/build "${build_requirements[@]}"
rm -f wheels/*.whl
arm env PYTHONPATH=/build bash -c 'cd /checkout && python -c "
from scikit_build_core.build import build_wheel
print(build_wheel(\"/folder/wheels\", {\"build-dir\": \"/tmp/build\"}))"'
wheel=$(echo wheels/*.whl)

step "what the tests need"
unpack "root/$site" "${wheel}[test]"
# The bytecode of 3.13 is the same on every machine.
"$PYTHON" -m compileall -qq -s root -p / "root/$site" root/usr/lib/python3.13 || true

step "the first example"
first_example() { # first_example FOLDER CHECKOUT COMMAND...: exports and links there; COMMAND is what runs numba-ptxlink
  local into=$1 example=$2/examples/transform
  shift 2
  "$@" export "$example/user_transform.py" -o "$into" --arch sm_90
  "$@" link "$example/apply_transform.cu" "$into/user_transform.sm_90.ltoir" -I "$into" -o "$into/ltoir.cubin" --arch sm_90
  "$@" link "$example/apply_transform.cu" "$into/user_transform.sm_90.ptx" -I "$into" -o "$into/ptx.cubin" --arch sm_90
}
rm -rf example
first_example /folder/example/arm /checkout arm python -P -m numba_ptxlink
NUMBA_PTXLINK_CACHE=0 first_example example/x86 "$checkout" "$PYTHON" -P -m numba_ptxlink
diff -r example/arm example/x86
echo "The $(find example/arm -type f | wc -l) files are the same."

step "tests"
arm bash -c "cd /checkout && python -m pytest -q -n 0 -p no:cacheprovider ${tests[*]}"
step "done"
