"""The claims of the four documents: the rows, what proves each, and how pages show them.

Input: `docs/claims/claims.json` (the rows), `tests/site/test_claims_*.py` (the proofs: functions
marked `proves("S0-07: false")`), the boxes of the lessons, and `docs/recorded/claims.*.json`
(proofs that ran on a GPU). Source is read, nothing is imported or run: the tests do that.

Marks that pages may hold: `{{ claims }}` (the ledger), `{{ verdicts }}` (how many of each),
`{{ measured and expected }}` (how many a run has shown), `{{ claim: S0-07 }}` (one claim with its
proof).
"""

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

import notebooks
import recordings
from recordings import Device

Verdict = Literal["true", "true with conditions", "outdated", "false", "not about JAX"]
Document = Literal["d2l-gpus", "haiku-gpu", "gpu-memory", "dgx"]
VERDICTS, DOCUMENTS = get_args(Verdict), get_args(Document)
Text = Annotated[str, Meta(min_length=1)]
LEDGER, COUNTS, SHOWN = "{{ claims }}", "{{ verdicts }}", "{{ measured and expected }}"
ONE = re.compile(r"(?m)^\{\{ claim: (S\d-\d\d) \}\}$")
BOX = re.compile(r'(?m)^!!! quote "Claim (S\d-\d\d) \(([\w-]+)\): ([\w ]+?)"$')
_ISSUES = re.compile(r"([\w.-]+/[\w.-]+) ?(#\d+(?:, #\d+)*)")
_HEADING = re.compile(r"^#{2,6} (.+?)(?: \{ #([\w-]+) \})?$")
_BOUND = re.compile(r"(S\d-\d\d): (.+)")
_TRIED = re.compile(r"(?:(S\d-\d\d(?:, S\d-\d\d)*): )?(.+)")
NOT_RECORDED = "expected, not yet recorded"


class ClaimError(Exception):
    """A page or a proof names a claim that is not in the ledger."""


@dataclass(frozen=True)
class Claim:
    """What a text states or implies, in our words, and what became of it when it was run."""

    id: Annotated[str, Meta(pattern=r"^S\d-\d\d$", description="the number: S0-07")]
    document: Annotated[Document, Meta(description="the text that states it")]
    lines: Annotated[
        str, Meta(pattern=r"^\d+(-\d+)?(,\d+(-\d+)?)*$", description="where in the text: 6,10-12")
    ]
    topic: Annotated[Text, Meta(description="a word to sort by")]
    verdict: Annotated[Verdict, Meta(description="on the versions of JAX that the course tests")]
    claim: Annotated[Text, Meta(description="what the text says")]
    truth: Annotated[Text, Meta(description="what is so")]
    sources: Annotated[str, Meta(description="what the row rests on beside its proofs, or nothing")]
    gpu: Annotated[
        str,
        Meta(
            pattern=r"^(G\d+(,G\d+)*)?$",
            description="the experiments that only a GPU can run for it, or nothing: G2,G3",
        ),
    ]
    differs: Annotated[
        dict[Annotated[str, Meta(pattern=r"^\d+\.\d+\.\d+$")], Text],
        Meta(description="versions of JAX on which its proof does not hold, and what holds there"),
    ] = field(default_factory=dict)


@dataclass(frozen=True)
class Proof:
    """One test function, and the claims whose verdicts it proves."""

    name: str
    path: Path
    line: int
    source: str
    bound: tuple[tuple[str, str], ...]
    """(id, verdict) of each claim."""
    gpu: bool
    counterexamples: tuple["Counterexample", ...]

    @property
    def key(self) -> str:
        """Hash of the code: a recording of other code is no recording of this proof."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:16]

    @property
    def tried(self) -> set[str]:
        """The claims for which it has been shown to fail where the verdict is false."""
        return {claim for each in self.counterexamples for claim in each.claims}


@dataclass(frozen=True)
class Counterexample:
    """A program or a machine of which the verdict of some claims is false, in words and as code."""

    claims: tuple[str, ...]
    words: str
    code: str


@dataclass(frozen=True)
class Box:
    """A claim as a lesson tells it, under the heading `anchor`."""

    id: str
    document: str
    verdict: str
    lesson: str
    title: str
    anchor: str


def rows(root: Path) -> dict[str, Claim]:
    """All claims by id, in the ledger's order; none where there is no ledger."""
    path = root / "docs" / "claims" / "claims.json"
    if not path.is_file():
        return {}
    data = msgspec.json.decode(path.read_bytes(), type=list[Claim])
    return {row.id: row for row in data}


def proofs(root: Path) -> list[Proof]:
    """All proofs, in the order of their files."""
    paths = sorted((root / "tests" / "site").glob("test_claims_*.py"))
    return [proof for path in paths for proof in _proofs_of(path)]


def _proofs_of(path: Path) -> Iterator[Proof]:
    text = path.read_text("utf-8")
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and (bound := _bound(node)):
            source = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            marks = {ast.unparse(mark) for mark in node.decorator_list}
            gpu = "pytest.mark.gpu" in marks
            tried = tuple(_counterexamples(node, lines))
            yield Proof(node.name, path, node.lineno, source, bound, gpu, tried)


def _bound(node: ast.FunctionDef) -> tuple[tuple[str, str], ...]:
    """The arguments of `@pytest.mark.proves(...)`, taken apart."""
    texts = [
        argument.value
        for mark in node.decorator_list
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.proves"
        for argument in mark.args
        if isinstance(argument, ast.Constant)
    ]
    found = [_BOUND.fullmatch(str(text)) for text in texts]
    if None in found:
        raise ClaimError(f'{node.name}: write proves("S0-07: false"), not {texts}')
    return tuple((match[1], match[2]) for match in found if match)


def _counterexamples(node: ast.FunctionDef, lines: list[str]) -> Iterator[Counterexample]:
    """What stands in `@pytest.mark.unless("S0-07: words", parameter=subject)`."""
    bound = [name for name, _ in _bound(node)]
    for mark in node.decorator_list:
        if not (isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.unless"):
            continue
        said = mark.args[0].value if mark.args and isinstance(mark.args[0], ast.Constant) else ""
        match = _TRIED.fullmatch(str(said))
        named = match[1].split(", ") if match and match[1] else bound
        if not match or not mark.keywords or not set(named) <= set(bound):
            raise ClaimError(f'{node.name}: write unless("what it is", parameter=subject)')
        code = "\n".join(lines[mark.lineno - 1 : mark.end_lineno])
        yield Counterexample(tuple(named), match[2], code)


def boxes(root: Path) -> list[Box]:
    """The claim boxes of all lessons, in order."""
    return [
        box for path in notebooks.lesson_paths(root / "docs" / "lessons") for box in _boxes_of(path)
    ]


def _boxes_of(path: Path) -> Iterator[Box]:
    title, anchor = "", ""
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("# ") and not line.startswith("# %%") and not title:
            title = line[2:]
        if heading := _HEADING.match(line):
            anchor = heading[2] or _slug(heading[1])
        if box := BOX.match(line):
            yield Box(box[1], box[2], box[3], path.stem, title, anchor)


def _slug(heading: str) -> str:
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def recorded(root: Path) -> dict[str, Device]:
    """The GPU on which the code of a proof has passed, by the hash of that code.

    Raises recordings.RecordingError for a file that is none of a GPU's.
    """
    found: dict[str, Device] = {}
    for path in sorted((root / "docs" / "recorded").glob("claims.*.json")):
        device, data = recordings.checked(path)
        found |= dict.fromkeys(data["proofs"], device)
    return found


class Ledger:
    """Everything that is known of the claims, read once."""

    def __init__(self, root: Path) -> None:
        self.claims, self.proofs, self.boxes = rows(root), proofs(root), boxes(root)
        self.recorded = recorded(root)

    def fill(self, markdown: str, uri: str) -> str:
        """A page with its marks replaced; `uri` is the page's path under docs/.

        Raises ClaimError where a page names a claim that does not exist.
        """
        if uri.startswith("lessons/"):
            return BOX.sub(_linked, markdown)
        markdown = ONE.sub(lambda match: self.one(match[1], uri), markdown)
        if LEDGER in markdown:
            markdown = markdown.replace(LEDGER, self.table())
        markdown = markdown.replace(SHOWN, self.measured_and_expected())
        return markdown.replace(COUNTS, self.counts())

    def proofs_of(self, claim: str) -> list[Proof]:
        """What proves a claim; what needs a GPU comes last."""
        found = [proof for proof in self.proofs if claim in dict(proof.bound)]
        return sorted(found, key=lambda proof: proof.gpu)

    def on_gpu(self, claim: str) -> str:
        """What a GPU has shown of a claim; nothing where no proof of it needs one."""
        needing = [proof for proof in self.proofs_of(claim) if proof.gpu]
        seen = [self.recorded[proof.key].label for proof in needing if proof.key in self.recorded]
        if not needing:
            return ""
        return f"recorded on {seen[0]}" if len(seen) == len(needing) else NOT_RECORDED

    def is_expected(self, claim: str) -> bool:
        """Whether only a GPU can show the claim's verdict, and none has."""
        here = any(not proof.gpu for proof in self.proofs_of(claim))
        return not here and self.on_gpu(claim) == NOT_RECORDED

    def verdict(self, claim: Claim) -> str:
        """The verdict as pages say it: what nothing has shown yet is told from what a run shows."""
        return f"{NOT_RECORDED}: {claim.verdict}" if self.is_expected(claim.id) else claim.verdict

    def measured_and_expected(self) -> str:
        """How many verdicts runs have shown, in whole sentences."""
        expected = [name for name in self.claims if self.is_expected(name)]
        waiting = [name for name in self.claims if self.on_gpu(name) == NOT_RECORDED]
        shown, second = len(self.claims) - len(expected), len(waiting) - len(expected)
        told = [f"Of {len(self.claims)} verdicts, {shown} are shown by runs."]
        if expected:
            told.append(
                f"{len(expected)} are expected and not yet recorded: only a GPU can show them, and "
                "each names the source that it rests on."
            )
        if second:
            told.append(f"Of the {shown}, {second} have a second proof that waits for GPUs.")
        return " ".join(told)

    def counts(self) -> str:
        """How many claims of each document have each verdict, as a Markdown table."""
        found = Counter((claim.document, claim.verdict) for claim in self.claims.values())
        head = f"| verdict | {' | '.join(DOCUMENTS)} | all |"
        lines = [head, "|---|" + "--:|" * (len(DOCUMENTS) + 1)]
        for verdict in VERDICTS:
            each = [found[document, verdict] for document in DOCUMENTS]
            lines.append(f"| {verdict} | {' | '.join(map(str, each))} | {sum(each)} |")
        totals = [sum(found[d, v] for v in VERDICTS) for d in DOCUMENTS]
        lines.append(f"| claims | {' | '.join(map(str, totals))} | {sum(totals)} |")
        expected = [claim.document for claim in self.claims.values() if self.is_expected(claim.id)]
        waiting = [expected.count(document) for document in DOCUMENTS]
        ran = [total - waits for total, waits in zip(totals, waiting, strict=True)]
        for what, each in (("shown by runs", ran), (NOT_RECORDED, waiting)):
            lines.append(f"| of these, {what} | {' | '.join(map(str, each))} | {sum(each)} |")
        return "\n".join(lines)

    def table(self) -> str:
        """All claims, one row each."""
        head = "| verdict | claim | document | topic | the text says | what is so | shown by |"
        lines = [head, "|---|---|---|---|---|---|---|"]
        lines += [self._row(claim) for claim in self.claims.values()]
        return '<div class="ledger" markdown>\n\n' + "\n".join(lines) + "\n\n</div>"

    def _row(self, claim: Claim) -> str:
        page = f"../documents/{claim.document}.md#{claim.id.lower()}"
        found = self.proofs_of(claim.id)
        ran = any(not proof.gpu for proof in found)
        shown = [f"[proof]({page})" if ran else f"[proof, for a GPU alone]({page})"]
        shown += [
            f"[lesson {box.lesson[:2]}](../lessons/{box.lesson}.ipynb#{box.anchor})"
            for box in self._told(claim.id)
        ]
        if gpu := self.on_gpu(claim.id):
            shown.append(f"on a GPU: {gpu}")
        cells = [
            f'<span id="{claim.id.lower()}" class="badge {style(claim.verdict)}">'
            f"{self.verdict(claim)}</span>",
            f"[{claim.id}]({page})",
            claim.document,
            claim.topic,
            claim.claim,
            " ".join(
                [claim.truth, *(f"(On jax {v}: {what})" for v, what in claim.differs.items())]
            ),
            ", ".join(shown),
        ]
        return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"

    def _told(self, claim: str) -> list[Box]:
        return list({box.lesson: box for box in self.boxes if box.id == claim}.values())

    def one(self, name: str, uri: str) -> str:
        """One claim on the page of its document: verdict, what is so, and the proofs in full."""
        if name not in self.claims:
            raise ClaimError(f"{uri}: no claim {name}")
        claim = self.claims[name]
        lines = f"line{'s' * (not claim.lines.isdigit())} {claim.lines.replace(',', ', ')}"
        sources = (
            f"\n    <small>Sources: {_ISSUES.sub(_threads, claim.sources)}</small>\n"
            if claim.sources
            else ""
        )
        body = (
            f'<div id="{name.lower()}" class="claim" markdown>\n\n'
            f'!!! quote {style(claim.verdict)} "{name}, {lines}: {self.verdict(claim)}"\n\n'
            f"    **The text says:** {claim.claim}.\n\n"
            f"    **What is so:** {claim.truth}\n\n"
            f"{_elsewhere(claim)}{self._where(name)}{sources}\n"
        )
        return body + "".join(map(_code, self.proofs_of(name))) + "\n</div>"

    def _where(self, claim: str) -> str:
        """Which lessons measure a claim, and whether a GPU has, as a line of its box."""
        lessons = [
            f"[{box.title.rstrip('?')}](../lessons/{box.lesson}.ipynb#{box.anchor})"
            for box in self._told(claim)
        ]
        told = f"**Measured in** {', '.join(lessons)}. " if lessons else ""
        gpu = f"**On a GPU:** {self.on_gpu(claim)}." if self.on_gpu(claim) else ""
        return f"    {told}{gpu}\n" if told or gpu else ""


def _elsewhere(claim: Claim) -> str:
    """What holds on other versions of JAX, as lines of a claim's box."""
    return "".join(f"    **On jax {jax}:** {what}\n\n" for jax, what in claim.differs.items())


def style(verdict: str) -> str:
    """The class of boxes and badges with this verdict: `verdict-true-with-conditions`."""
    return "verdict-" + verdict.lower().replace(" ", "-")


def _code(proof: Proof) -> str:
    """A proof, folded away, under the counter-examples for which it has to fail."""
    where = " (needs a GPU)" if proof.gpu else ""
    code = "\n".join([*(each.code for each in proof.counterexamples), proof.source])
    lines = _indented(code)
    fails = [f"- {each.words}" for each in proof.counterexamples]
    tried = "\n".join(["**It fails, as it must, for**", "", *fails])
    return (
        f'    ??? example "The proof{where}"\n\n        ```python '
        f'title="tests/site/{proof.path.name}"\n{lines}\n        ```\n\n'
        f"{_indented(tried)}\n\n"
    )


def _indented(text: str) -> str:
    """Text that stands inside a folded box."""
    return "\n".join(f"        {line}".rstrip() for line in text.splitlines())


def _threads(match: re.Match[str]) -> str:
    """`owner/name #1, #2` with each number as a link to its thread."""
    address = f"https://github.com/{match[1]}/issues"
    return match[1] + " " + re.sub(r"#(\d+)", rf"[#\1]({address}/\1)", match[2])


def _linked(match: re.Match[str]) -> str:
    name, document, verdict = match.groups()
    link = f"[{name}](../documents/{document}.md#{name.lower()})"
    return f'!!! quote {style(verdict)} "Claim {link} ({document}): {verdict}"'
