#!/usr/bin/env bash
# Runs the tests of graph-diffuser-kernels as a program for 64-bit ARM under qemu, which covers the NEON kernels.
#
#   scripts/test_aarch64.sh [TEST]...      all of them without arguments
#
# Needs, besides Rust with the standard library for the target (`rustup target add aarch64-unknown-linux-gnu`):
#
#   apt install qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross
#
# Without the standard library, the compiler of Debian's security updates is unpacked into the build directory, with its
# libraries for both architectures (140 MB of packages; nothing is installed). The exit code is 3 if something is
# missing.
#
# qemu executes instructions exactly, but not the memory order of ARM, which is weaker than that of x86-64.
set -euo pipefail
cd "$(dirname "$0")/.."

target=aarch64-unknown-linux-gnu
build=$(realpath -m "${CARGO_TARGET_DIR:-target}/aarch64")

skip() {
    echo "== skipped: $1" >&2
    exit 3
}

for tool in qemu-aarch64 aarch64-linux-gnu-gcc; do
    command -v "$tool" > /dev/null || skip "\`$tool\` is missing"
done
[ -d /usr/aarch64-linux-gnu/lib ] || skip "libc6-dev-arm64-cross is missing"

# Unpacks the compiler of Debian, and sets RUSTC to it.
unpack_compiler() {
    local root=$build/debian
    if [ ! -x "$root/rustc" ]; then
        command -v apt-get > /dev/null || skip "the compiler has no standard library for $target"
        rm -rf "$root" && mkdir -p "$root/lists/partial" "$root/cache/archives/partial" "$root/packages"
        # Package lists of their own, which leave the architectures of the system alone.
        local apt=(-q -o "Dir::State::lists=$root/lists" -o "Dir::Cache=$root/cache"
            -o APT::Architectures=amd64,arm64 -o APT::Architectures::=arm64 -o APT::Sandbox::User=root)
        apt-get "${apt[@]}" update || skip "Debian's package lists are not available"
        local compiler
        compiler=$(apt-cache "${apt[@]}" depends rustc-web | sed -n 's/.*Depends: \(libstd-rust-web-dev\)$/\1/p')
        [ -n "$compiler" ] || skip "this release of Debian has no rustc-web"
        local library llvm
        library=$(apt-cache "${apt[@]}" depends "$compiler" | sed -n 's/.*Depends: \(libstd-rust-web-[0-9.]*\)$/\1/p')
        llvm=$(apt-cache "${apt[@]}" depends "$library" | sed -n 's/.*Depends: \(libllvm[0-9]*\)$/\1/p')
        (
            cd "$root/packages"
            apt-get "${apt[@]}" download rustc-web "$compiler:amd64" "$compiler:arm64" "$library" "$llvm"
        )
        for package in "$root"/packages/*.deb; do dpkg-deb --extract "$package" "$root"; done
        rm -rf "$root/packages" "$root/lists" "$root/cache"
        printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' \
            "$root/usr/lib/x86_64-linux-gnu" "$root/usr/bin/rustc" > "$root/rustc"
        chmod +x "$root/rustc"
    fi
    export RUSTC=$root/rustc
}

[ -d "$(rustc --print target-libdir --target $target)" ] || unpack_compiler

export CARGO_TARGET_DIR=$build
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
cargo test --package graph-diffuser-kernels --lib --target $target -- "$@"
