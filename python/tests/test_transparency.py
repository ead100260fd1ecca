"""I14: with no cancel, both ends see the bytes that they would see without us."""

from __future__ import annotations

import json
import random
from typing import Any

from driver import INITIALIZE, Server, call, note, request, serving

IDS: list[Any] = [
    0,
    1,
    "",
    "0",
    "a string",
    -1,
    -(2**31),
    2**53 - 1,
    -(2**53 - 1),
    "\u00fc\u4e16\U0001f600",
    'q"\\\n\t\u2028',
]
TEXTS = [
    "",
    "plain",
    "\u00fc\u4e16\U0001f600",
    'quote " backslash \\ slash /',
    "\x00\x01\x1f\x7f",
    "\u2028\u2029",
    "line\nbreak\r\n",
]


def session() -> list[bytes]:
    """500 messages, the same ones every time. Each is answered, or a ping behind it is."""
    choose = random.Random(14)
    messages: list[bytes] = []
    for number in range(491):
        id, text = IDS[number % len(IDS)], TEXTS[number % len(TEXTS)]
        message = choose.choice(
            [
                call(id, "echo", text=text * choose.randrange(1, 40)),
                call(
                    id,
                    "received",
                    text=text,
                    number=choose.uniform(-1e9, 1e9),
                    deep={"a": [None, True, {text: text}]},
                ),
                call(id, "progress_and_return", steps=3, progress=choose.choice([id, f"token {number}"])),
                call(id, "no_such_tool"),
                call(id, "echo", wrong="argument"),
                request(id, "tools/list"),
                request(id, "resources/list"),
                request(id, "prompts/list"),
                request(id, "ping"),
                request(id, "no/such/method", anything=[1, 2.5, "x"]),
                request(id, "logging/setLevel", level="nonsense"),
                note("notifications/initialized"),
                note("notifications/no_such", x=text),
                note("notifications/roots/list_changed"),
            ]
        )
        style = choose.randrange(3)
        if style == 0:
            frame = json.dumps(message)
        elif style == 1:
            frame = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
        else:
            # As legal, and as nobody writes it.
            frame = json.dumps(message, separators=(" ,\t", " : ")).replace("/", "\\/")
        messages.append(frame.encode())
    for size in (1_000, 100_000, 5 << 20):
        messages.append(
            json.dumps(call(size, "echo", text="\u00e9" * (size // 2)), ensure_ascii=False).encode()
        )
        messages.append(json.dumps(call(-size, "received", text="x" * size, number=size, deep={})).encode())
    messages += [b"not json", b'{"jsonrpc":"2.0","id":1}', b'{"jsonrpc":"2.0","id":77777,"result":{}}']
    assert len(messages) == 500
    return messages


def play(mode: str, messages: list[bytes]) -> list[bytes]:
    """Every byte that the server writes, in lockstep: the order in which an SDK runs handlers is its own."""
    with serving(mode, initialize=False) as server:
        server.write(request("init", "initialize", **INITIALIZE))
        server.answer("init")
        for number, message in enumerate(messages):
            step(server, message, number)
        assert server.finish() == 0 or mode == "stock"
        return server.frames


def step(server: Server, message: bytes, number: int) -> None:
    try:
        read = json.loads(message)
    except ValueError:
        read = {}
    # An id that the SDK cannot read is answered without it.
    answers = lambda: len(server.answers(read.get("id"))) + len(server.answers(None))  # noqa: E731
    before = answers()
    server.write(message)
    if "method" in read and "id" in read:
        server.until(lambda: answers() > before, f"an answer to {read}")
    fence = f"fence {number}"
    server.write(request(fence, "ping"))
    server.answer(fence)


def test_i14_transparency_500_messages_without_a_cancel() -> None:
    messages = session()
    stock, again, guarded = play("stock", messages), play("stock", messages), play("run", messages)
    assert len(stock) == len(again) == len(guarded)
    differ = [n for n, (one, other) in enumerate(zip(stock, again, strict=True)) if one != other]
    # What the SDK itself does not print twice proves nothing, and must stay the exception.
    assert len(differ) <= len(stock) // 100
    for number, (one, other) in enumerate(zip(stock, guarded, strict=True)):
        assert one == other or number in differ, (one[:400], other[:400])
