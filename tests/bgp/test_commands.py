"""The queue of commands: a bound on what is under way, and nothing for a session that ended."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bgp.speaker.exabgp import command_lines
from bgp.speaker.exabgp.commands import Commands

SESSIONS = range(1, 7)


def words(commands: Commands) -> list[str]:
    """All that is said, in order."""
    said = []
    while (line := commands.next_line()) is not None:
        said.append(line)
        commands.answered(refused=False)
    return said


def test_what_is_under_way_fits_a_pipe() -> None:
    """One command always may; then so many that their lines stay below the bound."""
    commands, message = Commands(), bytes(4096)
    commands.add(command_lines.send([message] * 40, [1]))
    taken: list[str] = []
    while (line := commands.next_line()) is not None:
        taken.append(line)
    assert len(taken) > 1
    assert sum(len(line) + 1 for line in taken) <= command_lines.IN_FLIGHT
    assert not commands.idle
    commands.urgent(command_lines.end(1))
    commands.answered(refused=False)
    assert commands.next_line() == "end 6004 1"
    for _ in taken:
        commands.answered(refused=False)
    assert commands.idle
    rest = words(commands)
    assert "".join(line.split()[1] for line in taken + rest) == (message * 40).hex()
    commands.answered(refused=False)  # an answer too many does no harm
    assert commands.idle
    long = next(command_lines.send([bytes(40_000)], [1]))
    commands.add([long, command_lines.PING])
    assert commands.next_line() == long.line
    assert commands.next_line() is None


@given(
    wanted=st.lists(st.sets(st.sampled_from(SESSIONS), min_size=1), max_size=8),
    gone=st.sets(st.sampled_from(SESSIONS)),
)
def test_nothing_waits_for_a_session_that_ended(wanted: list[set[int]], gone: set[int]) -> None:
    """CMD-1: every other session still hears every command, in order."""
    commands = Commands()
    for number, some in enumerate(wanted):
        commands.add(command_lines.send([bytes([number])], some))
    for each in gone:
        commands.gone(each)
    expected = [
        (f"{number:02x}", sorted(some - gone)) for number, some in enumerate(wanted) if some - gone
    ]
    said = [(line.split()[1], list(map(int, line.split()[2:]))) for line in words(commands)]
    assert said == expected


def test_a_flapping_peer_costs_no_memory_while_exabgp_is_busy() -> None:
    """One command is under way and never answered; a session comes and goes a hundred times."""
    commands = Commands()
    commands.add(command_lines.send([bytes(40_000)], [1]))
    assert commands.next_line() is not None
    for number in range(2, 102):
        commands.add(command_lines.send([bytes(4096)] * 10, [number]))
        commands.add([command_lines.end(number)])
        assert commands.next_line() is None
        commands.gone(number)
    assert len(commands) == 0


def test_a_refusal_is_counted() -> None:
    commands = Commands()
    commands.add([command_lines.PING])
    assert commands.next_line() == "ping"
    commands.answered(refused=True)
    assert commands.errors == 1
    commands.answered(refused=False)
    assert commands.errors == 1
