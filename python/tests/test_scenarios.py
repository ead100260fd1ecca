"""Runs `tests/scenarios/*.json` through the public `Connection`: see the README there for the format."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

import countermand

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests" / "scenarios"
SCENARIOS = sorted(FOLDER.glob("*.json"))


def test_the_scenarios_are_there() -> None:
    assert len(SCENARIOS) >= 60


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: pathlib.Path) -> None:
    scenario = json.loads(path.read_text())
    run = Run(scenario.get("connection", {}))
    for number, step in enumerate(scenario["steps"], 1):
        run.step(step, f"step {number}: {step}")


class Run:
    """One scenario under way."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.connection = countermand.Connection(**options(settings))
        self.now = 0.0
        self.requests: dict[str, int] = {}
        self.tokens: dict[str, Any] = {}
        self.calls: dict[str, int] = {}

    def step(self, step: dict[str, Any], at: str) -> None:
        expect = step.get("expect")
        if (frame := frame_of(step, "receive")) is not None:
            verdicts = self.connection.receive(frame, self.now)
            if isinstance(expect, list):
                names = step.get("as") or [None] * len(expect)
                seen: Any = [
                    without_reply(self.received(verdict, name, wanted))
                    for verdict, name, wanted in zip(verdicts, names, expect, strict=True)
                ]
            else:
                (verdict,) = verdicts
                seen = self.received(verdict, step.get("as"), expect)
                if isinstance(expect, dict) and "reject" in expect:
                    # The reply is only compared where the scenario cares.
                    expect = {"reply": seen["reply"], **expect}
            assert seen == expect, at
        elif (frame := frame_of(step, "send")) is not None:
            verdict = self.connection.send(frame, self.now, self.tokens.get(step.get("within", "")))
            kind = verdict["verdict"]
            if kind == "request":
                self.calls[step["as"]] = verdict["call"]
            if kind == "write":
                seen = "write"
            elif kind in ("request", "cancel"):
                seen = rewritten(kind, verdict["frame"], expect) if verdict["rewritten"] else kind
            elif verdict["verdict"] == "rewrite":
                seen = rewritten("write", verdict["frame"], expect)
            else:
                seen = {"swallow": verdict["reason"]}
            assert seen == expect, at
        elif "begin" in step:
            assert self.begin(step) == expect, at
        elif "transmit" in step:
            assert self.connection.transmit(self.calls[step["transmit"]]) is expect, at
        elif "abandon" in step:
            cause, reason = step.get("cause", "local"), step.get("reason")
            assert self.connection.abandon(self.calls[step["abandon"]], cause, reason, self.now) == expect, at
        elif "outcome" in step:
            assert self.connection.outcome(self.calls[step["outcome"]]) == expect, at
        elif "outputs" in step:
            assert [self.output(output) for output in self.connection.outputs()] == step["outputs"], at
        elif "start" in step:
            assert self.connection.start(self.requests[step["start"]], self.now) is expect, at
        elif "finish" in step:
            assert self.connection.finish(self.requests[step["finish"]], self.now) == expect, at
        elif "discard" in step:
            self.connection.discard(self.requests[step["discard"]])
        elif "child" in step:
            self.tokens[step["as"]] = self.tokens[step["child"]].child()
        elif "token" in step:
            token = self.tokens[step["token"]]
            assert isinstance(expect, dict)
            assert {key: getattr(token, key) for key in expect} == expect, at
        elif "trip" in step:
            tripped = self.tokens[step["trip"]].trip(step.get("cause", "local"), step.get("reason"))
            assert tripped is expect, at
        elif "close" in step:
            closed = self.connection.close(step["close"], self.now)
            assert [self.name(generation) for generation in closed] == expect, at
        elif "advance_ms" in step:
            self.now += step["advance_ms"] / 1_000
            self.connection.handle_timeout(self.now)
        elif "stats" in step:
            if "tokens" in step["stats"]:
                self.tokens.clear()
            stats = self.connection.stats()
            assert {key: stats[key] for key in step["stats"]} == step["stats"], at
        else:
            raise AssertionError(f"no such step: {at}")

    def begin(self, step: dict[str, Any]) -> Any:
        params = None if "params" not in step else json.dumps(step["params"])
        seconds = {key: step[f"{key}_ms"] / 1_000 for key in ("idle", "total") if f"{key}_ms" in step}
        try:
            begun = self.connection.begin(
                step["begin"],
                params,
                self.now,
                within=self.tokens.get(step.get("within", "")),
                progress=step.get("progress", False),
                **seconds,
            )
        except countermand.Cancelled:
            return {"error": "cancelled"}
        except ConnectionError:
            return {"error": "closed"}
        except RuntimeError:
            return {"error": "too_many"}
        self.calls[step["as"]] = begun["call"]
        self.tokens[step["as"]] = begun["token"]
        return json.loads(begun["frame"])

    def output(self, output: dict[str, Any]) -> Any:
        match output["output"]:
            case "abandoned":
                seen = {"abandoned": self.call(output["call"])}
                seen.update({key: output[key] for key in ("cause", "outcome", "reason") if output[key]})
                return seen
            case "cancel" | "deliver" as verb:
                return {verb: json.loads(output["frame"])}
            case "close_stream":
                return {"close_stream": self.call(output["call"])}
        return output["output"]

    def call(self, call: int) -> str:
        return next(name for name, known in self.calls.items() if known == call)

    def received(self, verdict: dict[str, Any], name: str | None, expect: Any) -> Any:
        match verdict["verdict"]:
            case "deliver":
                generation = verdict["generation"]
                assert (generation is not None) == (name is not None), "tracked if and only if named"
                if generation is not None and name is not None:
                    self.requests[name] = generation
                    self.tokens[name] = countermand.Token(self.connection, generation)
                if not verdict["rewritten"]:
                    return "deliver"
                return rewritten("deliver", verdict["frame"], expect)
            case "cancelled":
                seen = {"cancelled": self.name(verdict["generation"])}
                silence = verdict["silence"]
                if isinstance(silence, bytes):
                    seen["silence"] = json.loads(silence)
                elif silence != "nothing":
                    seen["silence"] = silence
                return seen
            case "settled" | "progress" as verb:
                return {verb: self.call(verdict["call"])}
            case "ignored":
                return {"ignored": verdict["reason"]}
            case "reject":
                return {"reject": verdict["reason"], "reply": json.loads(verdict["reply"])}
        raise AssertionError(verdict)

    def name(self, generation: int) -> str:
        return next(name for name, known in self.requests.items() if known == generation)


def frame_of(step: dict[str, Any], verb: str) -> bytes | None:
    if verb in step:
        return json.dumps(step[verb], ensure_ascii=False).encode()
    raw = step.get(f"{verb}_raw")
    return None if raw is None else raw.encode("utf-8", "surrogatepass")


def rewritten(verb: str, frame: bytes, expect: Any) -> Any:
    if isinstance(expect, dict) and f"{verb}_raw" in expect:
        return {f"{verb}_raw": frame.decode()}
    return {verb: json.loads(frame)}


def without_reply(seen: Any) -> Any:
    """Inside a batch, replies are not compared."""
    return {key: value for key, value in seen.items() if key != "reply"} if isinstance(seen, dict) else seen


def options(settings: dict[str, Any]) -> dict[str, Any]:
    options = {key: settings[key] for key in ("wire", "id_match") if key in settings}
    if "early_cancel" in settings:
        early = settings["early_cancel"]
        options["early_cancel"] = (early["hold_ms"] / 1_000, early.get("max", 64))
    options.update({f"alias_{key}": value for key, value in settings.get("alias", {}).items()})
    for key, value in settings.get("limits", {}).items():
        if key in ("retired_age_ms", "tombstone_age_ms"):
            options[key.removesuffix("_ms")] = value / 1_000
        else:
            options[key] = value
    return options
