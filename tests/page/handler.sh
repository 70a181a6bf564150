#!/bin/sh
# A program for `leasehold dev`: its message says whether it fails for good, with what words, or takes some seconds.
body=$(cat)
case $body in
  *'"does":"wait"'*) sleep 5 ;;
  *)
    printf '%s\n' "$body" >&2
    exit 65
    ;;
esac
