"""A diagnosis in lines for the terminal, and as findings for a page."""

from __future__ import annotations

from railwright.diagnose.result import Diagnosis, Suspect
from railwright.fabric.finding import Finding

WORDS = {"leaf": "leaves", "gpu": "GPUs", "nic": "NICs"}


def lines(result: Diagnosis) -> list[str]:
    """The whole answer, the most important first."""
    faults = result.faults
    if faults:
        out = [f"{len(faults)} fault{'s' if len(faults) > 1 else ''} found:"]
    elif result.suspects:
        out = [f"No fault is proved; {result.none:.0%} that nothing is at fault. Suspects:"]
    else:
        out = ["No suspect: the evidence is what a sound machine would show."]
    for number, suspect in enumerate(result.suspects, 1):
        out += ["", *_suspect_lines(number, suspect)]
    if result.unidentifiable:
        out += ["", "Not told apart by this evidence"]
        out += [f"  {sentence}" for sentence in result.unidentifiable]
    if result.untested:
        told = ", ".join(f"{n:,} {_plural(kind, n)}" for kind, n in result.untested.items())
        out += ["", f"Not touched by any evidence: {told}"]
    if result.next_tests:
        out += ["", "Next tests, the best first"]
        for test in result.next_tests:
            out += [f"  {test.command}", f"    crosses {', '.join(test.between[:4])} ({test.gain:.2f} bit)"]
    if result.notes:
        out += ["", *(f"note: {note}" for note in result.notes)]
    return out


def findings(result: Diagnosis) -> list[Finding]:
    """Suspects as findings: a fault from 50 %, a warning from 10 %, below that a note."""
    return [
        Finding(
            s.kind,
            "fault" if s.probability >= 0.5 else "warning" if s.probability >= 0.1 else "note",
            s.element,
            ((s.element, 0),),
            "sound",
            _state(s),
            "; ".join(s.evidence) or "what is left once the others are ruled out",
            s.probability,
            s.next_test,
        )
        for s in result.suspects
    ]


def _suspect_lines(number: int, suspect: Suspect) -> list[str]:
    name = f"{suspect.kind} {suspect.element}"
    if suspect.readings > 1:
        others = suspect.readings - 1
        name += f", or {others} other{'s' if others > 1 else ''} that cannot be told from it"
    out = [f"{number}. {name}: {suspect.probability:.0%}, {_state(suspect)}"]
    if suspect.readings > 1:
        told = ", ".join(f"{kind} {name} {p:.0%}" for name, kind, p in suspect.alternatives[:4])
        out.append(f"   one of: {told}{' …' if suspect.readings > 4 else ''}")
    out += [f"   - {sentence}" for sentence in suspect.evidence]
    if suspect.against:
        out.append(f"   - against it: {suspect.against} sound measurement(s) through it")
    if suspect.blast:
        out.append(f"   touches {suspect.blast}")
    out.append(f"   next: {suspect.next_test}")
    return out


def _state(suspect: Suspect) -> str:
    if suspect.left is None:
        return "shows in events only"
    if suspect.left < 0.02:
        return "passes nothing"
    way = {"both": "", "out": ", outwards only", "in": ", inwards only"}[suspect.way]
    return f"{suspect.left:.0%} of the rate left{way}" if suspect.left < 0.999 else "slows nothing"


def _plural(kind: str, number: int) -> str:
    return kind if number == 1 else WORDS.get(kind, f"{kind}s")
