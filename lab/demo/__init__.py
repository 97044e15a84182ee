"""The story of one pod network, told by real commands; each step is a check.

A check looks from outside: packets, `birdc` on the router, `etcdctl`, kernel dumps. It never asks
one of our processes whether it is well (DEMO-1). One module per check, in the order of `CHECKS` in
`lab.demo.story`.

Invariant DEMO-1: no check of the demo rests on what one of our processes says of itself.
Tested in tests/e2e, where planted faults must make the matching check fail.
"""
