#!/usr/bin/env bash
# Checks the unsafe code of graph-diffuser-kernels: tests under the address and the thread sanitizer, tests that Miri can
# run, and the loom model of the thread pool.
#
#   scripts/sanitize.sh [address|thread|miri|loom]...      all of them without arguments
#
# A check whose compiler or component is missing is skipped with a reason. The exit code is 1 if a check failed, and 3 if
# none failed but some were skipped.
#
# The sanitizers need an unstable compiler option: the nightly compiler is used if it is installed, otherwise the stable
# one with RUSTC_BOOTSTRAP=1. The thread sanitizer also needs an instrumented standard library, that is nightly and its
# component rust-src: otherwise it does not see the order that contended locks establish, and reports false races.
set -uo pipefail
cd "$(dirname "$0")/.."

target=$(rustc -vV | sed -n 's/^host: //p')
build=${CARGO_TARGET_DIR:-target}/sanitize
# Without optimization the crate compiles in a tenth of the time.
export CARGO_PROFILE_DEV_OPT_LEVEL=0
failed=()
skipped=()

if cargo +nightly --version > /dev/null 2>&1; then
    compiler=(cargo +nightly)
    sysroot=$(rustc +nightly --print sysroot)
else
    export RUSTC_BOOTSTRAP=1
    compiler=(cargo)
    sysroot=$(rustc --print sysroot)
fi

skip() {
    echo "== $1 skipped: $2"
    skipped+=("$1")
}

# Runs the command after the name of the check.
run() {
    local name=$1
    shift
    echo "== $name: $*"
    if "$@"; then echo "== $name passed"; else
        echo "== $name failed"
        failed+=("$name")
    fi
}

has_sanitizer() {
    compgen -G "$sysroot/lib/rustlib/$target/lib/librustc*_rt.$1.a" > /dev/null
}

address() {
    has_sanitizer asan || { skip address "the compiler has no runtime of the address sanitizer for $target" && return; }
    # Tasks that a panic leaves behind are leaked on purpose.
    ASAN_OPTIONS=detect_leaks=0 RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=$build/address \
        run address "${compiler[@]}" test --package graph-diffuser-kernels --lib --target "$target"
}

thread() {
    has_sanitizer tsan || { skip thread "the compiler has no runtime of the thread sanitizer for $target" && return; }
    [ -d "$sysroot/lib/rustlib/src/rust/library" ] \
        || { skip thread "install the sources with \`rustup +nightly component add rust-src\`" && return; }
    # The pool, its buffers, and one test of every kernel that compares numbers of threads.
    RUSTFLAGS=-Zsanitizer=thread CARGO_TARGET_DIR=$build/thread \
        run thread "${compiler[@]}" test --package graph-diffuser-kernels --lib --target "$target" -Zbuild-std \
        -- parallel buffer results_are_independent_of_thread_count
}

miri() {
    cargo +nightly miri --version > /dev/null 2>&1 \
        || { skip miri "install it with \`rustup +nightly component add miri rust-src\`" && return; }
    # Vector instructions are not interpreted, and most kernels would take hours: the pool, its memory, and a kernel on
    # tiny graphs.
    MIRIFLAGS=-Zmiri-disable-isolation CARGO_TARGET_DIR=$build/miri \
        run miri cargo +nightly miri test --package graph-diffuser-kernels --lib -- parallel:: buffer:: \
        no_steps_or_edges
}

loom() {
    CARGO_TARGET_DIR=$build/loom run loom cargo test --manifest-path loom/Cargo.toml
}

for check in "${@:-address thread miri loom}"; do
    for name in $check; do
        case $name in
            address | thread | miri | loom) $name ;;
            *)
                echo "unknown check: $name" >&2
                exit 2
                ;;
        esac
    done
done

echo "failed: ${failed[*]:-none}; skipped: ${skipped[*]:-none}"
if [ ${#failed[@]} -gt 0 ]; then exit 1; fi
if [ ${#skipped[@]} -gt 0 ]; then exit 3; fi
