# syntax=docker/dockerfile:1

# The leasehold command in an image that has nothing else: no shell, no root, no embedded engine.
#
#   docker build --tag leasehold .
#   docker build --tag leasehold --build-arg FEATURES=cli,s3 .
#   docker buildx build --platform linux/amd64,linux/arm64 --tag <registry>/leasehold:0.1.0 --push .
#
# The last makes it for both architectures, each compiled on the builder's own: nothing is emulated. It wants a builder that
# can hold both, once: docker buildx create --use.

FROM --platform=$BUILDPLATFORM rust:1.95.0-slim-bookworm AS build
WORKDIR /src
SHELL ["/bin/sh", "-eu", "-c"]

# A compiler for the other architecture, if that is asked for. Debian has one under this name for its own, too.
ARG TARGETARCH
ENV CC_x86_64_unknown_linux_gnu=x86_64-linux-gnu-gcc \
    CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc \
    CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER=x86_64-linux-gnu-gcc \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
# Debian keeps one version of it, so that a pinned one is gone with the next.
# hadolint ignore=DL3008
RUN case "$TARGETARCH" in \
      amd64) target=x86_64-unknown-linux-gnu compiler=gcc-x86-64-linux-gnu ;; \
      arm64) target=aarch64-unknown-linux-gnu compiler=gcc-aarch64-linux-gnu ;; \
      *) echo "no image for '$TARGETARCH': amd64 and arm64 there are" >&2; exit 1 ;; \
    esac; \
    echo "$target" >/target; \
    rustup target add "$target"; \
    if [ "$TARGETARCH" != "$(dpkg --print-architecture)" ]; then \
      apt-get update; \
      apt-get install --yes --no-install-recommends "$compiler" "libc6-dev-$TARGETARCH-cross"; \
      rm -rf /var/lib/apt/lists/*; \
    fi

# All that .dockerignore lets through.
COPY . .

# `s3` adds bodies that are in S3. Never `demo`: the engine in it is for tests.
ARG FEATURES=cli
# Names of functions are of no use without the source, and half of the size.
ENV CARGO_PROFILE_RELEASE_STRIP=symbols
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --features "$FEATURES" --bin leasehold --target "$(cat /target)"; \
    cp "target/$(cat /target)/release/leasehold" /leasehold

# The C library that it was linked with, certificates, and a user who is not root.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /leasehold /usr/local/bin/leasehold
USER 65532:65532
# A worker that hangs is to be replaced, one that waits is not. ECS has its own in the task definition.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s CMD ["leasehold", "health", "--live"]
# No shell between: signals reach it.
ENTRYPOINT ["leasehold"]
CMD ["run"]
