"""Environment, process, configuration on stdin, VERSION: sections 1, 2, 9 and the vectors.

Every refusal is asked of the build with a daemon that would accept, and with none: the answers
are the same to the byte.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from typing import Any

from cni.request.result import SUPPORTED_VERSIONS
from tests.cni import test_config, test_executable, test_executable_daemon, test_vectors
from tests.cni import test_executable_delegate as delegates
from tests.cni.executable import BASE, CONFIG, FULL_SIZE, call, config
from tests.cni_conformance.registry import Checks
from tests.cni_conformance.stage import Stage, decoded
from tests.support.patience import HANG

checks = Checks()
for _promise, _id in (
    ("M-13", "ENV-20"), ("M-13", "ENV-18"), ("M-18", "ENV-06"), ("M-42", "ENV-01"),
    ("M-48", "ENV-08"), ("M-50", "CFG-04"), ("ADV-7", "DLG-01"),
):  # fmt: skip
    checks.promise(_promise, _id)
VERSION = {"CNI_COMMAND": "VERSION"}
NONSENSE = {"CNI_NETNS": "b", "CNI_IFNAME": "c"}


# The one table of input checks


def vectors(one: str) -> Callable[[Stage], None]:
    """All vectors of one id."""
    chosen = [
        vector for vector in test_vectors.SMALL if one in vector["checks"] and "run" not in vector
    ]

    def run(stage: Stage) -> None:
        assert chosen
        count = len(chosen) if FULL_SIZE else 2 if stage.build.is_twin else 6
        for vector in chosen[:: -(-len(chosen) // count)]:
            env = stage.up(test_vectors.environment(vector))
            for name in BASE:
                if name not in test_vectors.environment(vector):
                    env.pop(name)
            stdin = test_vectors.configuration(vector)
            done = call(stage.build.plugin("calico-ipam"), env, stdin)
            test_vectors.judge(vector, done)
            if "accepted" not in vector["expect"]:
                alone = env | {"CNI_CALICO_SOCKET": str(stage.folder / "none")}
                assert call(stage.build.plugin("calico-ipam"), alone, stdin) == done

    return run


for _one in sorted({one for v in test_vectors.SMALL if "run" not in v for one in v["checks"]}):
    checks(_one)(vectors(_one))


# Environment and process

checks.shown(test_executable.test_no_command_prints_about_on_stderr, "ENV-05")
checks.shown(test_executable.test_flags_and_ignored_arguments, "ENV-01", "CAL-33")
checks.shown(
    delegates.test_a_delegate_gets_environment_and_stdin_and_keeps_its_stderr,
    "ENV-08", "ENV-13", "OUT-11", "DLG-02", "DLG-12", build="plugin",
)  # fmt: skip
checks.shown(
    test_executable.test_a_deleted_working_directory_and_a_noisy_environment, "ENV-13", "ENV-14"
)
for _redirect in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-", "2>&- 9>&1"):
    checks.shown(
        test_executable.test_closed_descriptors_do_no_harm, "ENV-15", "OUT-05", redirect=_redirect
    )
checks.shown(
    test_executable.test_missing_and_wrong_namespaces, "ENV-24", "ENV-25", "ENV-26", "ERR-11"
)
checks.shown(test_executable.test_own_namespace_is_allowed_when_overridden, "ENV-27")
checks.shown(test_executable.test_of_two_faults_the_earlier_is_reported, "ENV-28")
checks.shown(test_executable.test_stdin_that_cannot_be_read, "CFG-02", "ERR-08")
checks.shown(test_executable.test_stdin_of_a_mebibyte_in_small_pieces, "CFG-15")
checks.shown(test_executable_daemon.test_a_mebibyte_goes_through, "CFG-15")
checks.shown(test_executable.test_no_secret_is_ever_echoed, "CFG-21", "ERR-18")
checks.shown(test_executable.test_broken_stdout_is_no_signal, "OUT-13")


@checks("ENV-09")
def dummies_are_not_looked_at(stage: Stage) -> None:
    env = VERSION | {"CNI_NETNS": "dummy", "CNI_IFNAME": "dummy", "CNI_PATH": "dummy"}
    done = call(stage.build.plugin(), env, {"cniVersion": "1.1.0"})
    assert decoded(done)["supportedVersions"] == list(SUPPORTED_VERSIONS)


@checks("ENV-12")
def nothing_but_cni_variables_is_needed(stage: Stage) -> None:
    env = stage.up(NONSENSE)
    assert all(name.startswith("CNI_") for name in env)
    assert call(stage.build.plugin("calico-ipam"), env, CONFIG).status == 0


@checks("ENV-30")
def a_regular_executable_file_under_two_names(stage: Stage) -> None:
    for name in ("calico", "calico-ipam"):
        file = stage.build.plugin(name)
        assert file.is_file()
        assert os.access(file, os.X_OK)
    folder = stage.fresh()
    fresh = folder / "new"
    for _ in range(5):
        # Written beside and renamed: never "text file busy".
        shutil.copy(stage.build.plugin(), fresh)
        fresh.rename(folder / "calico")
        assert call(folder / "calico", VERSION, b"").status == 0


@checks("ENV-31")
def a_reduced_capability_set_is_enough(stage: Stage) -> None:
    done = subprocess.run(
        ["setpriv", "--bounding-set=-all,+net_admin,+net_raw,+sys_admin,+dac_override",
         "--inh-caps=-all", "--", stage.build.plugin("calico-ipam")],
        env=stage.up(NONSENSE), input=json.dumps(CONFIG).encode(), capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done


# Configuration


@checks("CFG-10", "CAP-09")
def members_of_the_runtime_in_any_case(stage: Stage) -> None:
    test_config.test_runtime_config_is_read_without_regard_to_case()
    for runtime in (
        {"portMappings": [{"HostPort": 1, "ContainerPort": 2, "Protocol": "tcp", "HostIP": ""}]},
        {"portMappings": [{"hostPort": 1, "containerPort": 2, "protocol": "tcp"}]},
        {"dns": {"Servers": None, "Searches": None, "Options": None}, "portMappings": None},
    ):
        stdin = config(runtimeConfig=runtime)
        assert call(stage.build.plugin("calico-ipam"), stage.up(NONSENSE), stdin).status == 0


@checks("CFG-12")
def null_means_absent(stage: Stage) -> None:
    test_config.test_null_means_absent()


@checks("CFG-11")
def numbers_may_arrive_as_floats(stage: Stage) -> None:
    test_config.test_whole_numbers_may_arrive_as_floats()


@checks("CFG-08", "ERR-05", "ERR-10")
def a_known_key_with_a_bad_value_is_named(stage: Stage) -> None:
    for where, bad in test_config.BAD:
        test_config.test_a_value_that_cannot_be_honoured_is_named(where, bad)


@checks("ERR-07")
def a_bad_environment_is_code_4_and_named(stage: Stage) -> None:
    for name in ("CNI_CONTAINERID", "CNI_IFNAME"):
        error = stage.refused({name: None}, CONFIG, "calico-ipam")
        assert (error["code"], name in error["msg"]) == (4, True)


@checks("ERR-01", "ERR-02", "ERR-16", "OUT-03", "OUT-04", "OUT-14")
def the_error_object(stage: Stage) -> None:
    for stdin, version in (
        (config(name=""), "1.0.0"),
        ("{", "1.1.0"),
        (config(name="a\tb"), "1.0.0"),
    ):
        env = stage.up(NONSENSE)
        done = call(stage.build.plugin("calico-ipam"), env, stdin)
        error = done.error
        assert error["cniVersion"] == version
        assert isinstance(error["code"], int)
        assert "\n" not in error["msg"]
        assert "Traceback" not in done.stdout.decode() + done.stderr
        assert not done.stdout.startswith(b"\xef\xbb\xbf")
        assert b"\t" not in done.stdout
        assert b"\\/" not in done.stdout
        assert error["msg"] in done.stderr, "the log line on stderr"


@checks("OUT-10")
def stderr_is_short_and_plain(stage: Stage) -> None:
    stdin = config(name="-" * 20_000)
    done = call(stage.build.plugin("calico-ipam"), stage.up(NONSENSE), stdin)
    assert done.error["code"] == 7
    assert len(done.stderr) < 4096
    assert "\x1b" not in done.stderr
    quiet = call(stage.build.plugin("calico-ipam"), stage.up(NONSENSE), CONFIG)
    assert quiet.stderr == ""


@checks("ERR-14", "ERR-15", "ERR-03")
def own_codes_begin_at_100(stage: Stage) -> None:
    from cni.request.errors import Code

    assert {int(code) for code in Code} == {1, 2, 3, 4, 5, 6, 7, 8, 11, 50, 51, 100, 999}
    done = subprocess.run([stage.build.plugin(), "-x"], env={}, capture_output=True, check=False)
    assert json.loads(done.stdout)["code"] == 100
    assert done.returncode == 1


# VERSION

checks.shown(test_executable.test_version_does_not_wait_for_a_silent_stdin, "VER-03", written=b"")
checks.shown(test_executable.test_version_needs_no_privileges, "VER-05")


@checks("VER-01", "VER-02", "VER-04", "VER-06", "CAL-30", "CAL-31", "CAL-32")
def version_prints_both_keys(stage: Stage) -> None:
    for name in ("calico", "calico-ipam"):
        for stdin, said in (({"cniVersion": "0.4.0"}, "0.4.0"), (b"", "1.1.0"), (b"{", "1.1.0")):
            done = stage.answered(VERSION, stdin, name)
            assert decoded(done) == {
                "cniVersion": said,
                "supportedVersions": [
                    "0.1.0",
                    "0.2.0",
                    "0.3.0",
                    "0.3.1",
                    "0.4.0",
                    "1.0.0",
                    "1.1.0",
                ],
            }


@checks("VER-05")
def version_needs_neither_daemon_nor_datastore(stage: Stage) -> None:
    done = stage.answered(VERSION, {"cniVersion": "1.0.0", "etcd_endpoints": ""})
    assert (done.status, done.stderr) == (0, "")


@checks("VER-07", "ERR-04")
def unknown_versions_are_code_1(stage: Stage) -> None:
    for version in ("0.5.0", "2.0.0", "1.2.0", "9.9.9"):
        for command in ("ADD", "DEL"):
            error = stage.refused(
                NONSENSE | {"CNI_COMMAND": command}, config(cniVersion=version), "calico-ipam"
            )
            assert (error["code"], error["msg"]) == (1, "incompatible CNI versions")
            assert version in error["details"]
            assert '"0.1.0"' in error["details"]


checks.shown(test_executable.test_version_is_quick, "TIM-01")


# The thin executable and its daemon

checks.shown(test_executable_daemon.test_a_daemon_that_is_just_restarting_is_waited_for, "THN-02")
checks.shown(
    test_executable_daemon.test_unknown_messages_and_fields_of_a_later_release_are_ignored, "THN-05"
)
checks.shown(test_executable_daemon.test_socket_modes_and_a_stale_socket, "THN-06")
for _command in ("ADD", "DEL", "STATUS"):
    checks.shown(
        test_executable_daemon.test_a_daemon_that_does_not_finish, "THN-03", "TIM-04", "TIM-03",
        command=_command, trouble="dies",
    )  # fmt: skip
    checks.shown(
        test_executable_daemon.test_a_daemon_that_does_not_finish, "THN-05",
        command=_command, trouble="other version",
    )  # fmt: skip


@checks("THN-01")
def validation_needs_no_daemon(stage: Stage) -> None:
    cases: list[tuple[dict[str, str | None], Any, int]] = [
        ({"CNI_COMMAND": "UPDATE"}, CONFIG, 4),
        ({}, "{", 6),
        ({}, config(name=""), 7),
        ({}, config(cniVersion="7.0.0"), 1),
    ]
    for env, stdin, code in cases:
        assert stage.refused(NONSENSE | env, stdin, "calico-ipam")["code"] == code


@checks("THN-02", "ERR-12", "STA-02", "DEL-14")
def without_a_daemon(stage: Stage) -> None:
    for command, code in (("ADD", 11), ("CHECK", 11), ("STATUS", 50), ("DEL", None)):
        env = stage.away(NONSENSE | {"CNI_COMMAND": command})
        started = time.monotonic()
        done = call(stage.build.plugin("calico-ipam"), env, config(cniVersion="1.1.0"))
        assert time.monotonic() - started < HANG
        if code is None:
            assert (done.status, done.stdout) == (0, b"")
            continue
        assert done.error["code"] == code
        assert "calico-cni" in done.error["msg"] + done.error.get("details", "")


test_conformance = checks.items()
