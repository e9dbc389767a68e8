"""
Random PTX from a grammar: each piece is its tokens and the value they stand for.

The tokens are joined by `spaced`, so that the text has white space and comments wherever they may be. No
assembler need take it: names are declared nowhere.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

from numba_ptxlink._formats import ptx


class Piece(NamedTuple):
    """The tokens of a value; a comment of one line could not follow a token that is a line."""

    tokens: list[str]
    value: Any


class Heading(NamedTuple):
    """What there is to know of a function."""

    linkage: str
    kind: str
    name: str
    results: tuple[ptx.Parameter, ...]
    params: tuple[ptx.Parameter, ...]
    attributes: tuple[ptx.Directive, ...]
    directives: tuple[ptx.Directive | ptx.Pragma, ...]
    body: tuple[ptx.Statement, ...]


WORD = st.from_regex(r"(?!call\Z)([a-z][a-z0-9_$]{0,4}|[%$_][a-z0-9_$]{1,4})", fullmatch=True)
MODIFIER = st.sampled_from(["u32", "f32", "global", "v4", "shared::cluster", "2d", "L2::128B", "rn", "uni"])
SELECTOR = st.sampled_from(["", "", "", "x", "b0", "h1"])
TYPE = st.sampled_from(["b8", "u16", "s32", "b64", "f32", "f64", "pred", "f16x2"])
SPACE = st.sampled_from(["global", "const", "shared", "local"])
LINKAGE = st.sampled_from(["", "", "visible", "extern", "weak", "common"])
NUMBER = st.one_of(
    st.integers(0, 2**32).map(str),
    st.sampled_from(["0x1FU", "0b101", "017", "1.5", ".5", "1e3", "0f3F800000", "0d3FF0000000000000", "12U"]),
)
SMALL = st.integers(1, 64)
STRING = st.sampled_from(["", "nounroll", "a\\", "{", "// a", "*/ ; }", ".func f();"])
BLANK = st.sampled_from(
    [" ", "\n", "\t", "\r\n", '// ; { "\n', '/* } ; " .func f(); */', " // a /* \n", "\n/**/", "/*\n*/ "]
)  # fmt: skip
TIGHT = st.one_of(st.just(""), BLANK)


def _glued(before: str, after: str) -> bool:
    """Return whether two tokens would become others without white space between them."""
    edge = before[-1] + after[0]
    letters = [letter.isalnum() or letter in "_$%.:@" for letter in edge]
    return all(letters) or edge in ("//", "/*", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||")


@st.composite
def spaced(draw: st.DrawFn, tokens: list[str]) -> str:
    """Return the text of *tokens*, with white space and comments between them."""
    pieces = [draw(TIGHT)]
    for before, after in zip(tokens, [*tokens[1:], ";"], strict=True):
        pieces.append(before)
        if before.startswith("#"):
            pieces.append("\n")
        pieces.append(draw(BLANK if _glued(before, after) else TIGHT))
    return "".join(pieces)


def joined(pieces: list[Piece], separator: str = ",") -> Piece:
    """Return *pieces* with *separator* between them; their values are a tuple."""
    tokens: list[str] = []
    for piece in pieces:
        tokens += [separator, *piece.tokens] if tokens and separator else piece.tokens
    return Piece(tokens, tuple(piece.value for piece in pieces))


def enclosed(opening: str, piece: Piece, closing: str) -> Piece:
    """Return *piece* between brackets."""
    return Piece([opening, *piece.tokens, closing], piece.value)


@st.composite
def name(draw: st.DrawFn) -> Piece:
    """Return a name."""
    word, selector = draw(WORD), draw(SELECTOR)
    if not selector:
        return Piece([word], ptx.Name(word))
    tokens = [f"{word}.{selector}"] if draw(st.booleans()) else [word, f".{selector}"]
    return Piece(tokens, ptx.Name(word, selector))


PLAIN = WORD.map(lambda word: Piece([word], ptx.Name(word)))
IMMEDIATE = NUMBER.map(lambda text: Piece([text], ptx.Immediate(text)))


@st.composite
def expression(draw: st.DrawFn) -> Piece:
    """Return an expression."""
    base, number = draw(PLAIN), draw(IMMEDIATE)
    signs = draw(st.sampled_from([["+"], ["-"], ["+", "-"], ["<<"], ["*"]]))
    if draw(st.booleans()):
        wrapped = ["generic", "(", *base.tokens, ")"]
        parts = (ptx.Name("generic"), "(", base.value, ")", *signs, number.value)
        return Piece([*wrapped, *signs, *number.tokens], ptx.Expression(parts))
    return Piece([*base.tokens, *signs, *number.tokens], ptx.Expression((base.value, *signs, number.value)))


@st.composite
def vector(draw: st.DrawFn) -> Piece:
    """Return a vector."""
    elements = joined(draw(st.lists(st.one_of(name(), IMMEDIATE), min_size=1, max_size=4)))
    return Piece(enclosed("{", elements, "}").tokens, ptx.Vector(elements.value))


@st.composite
def address(draw: st.DrawFn) -> Piece:
    """Return an address."""
    elements = [draw(st.one_of(name(), IMMEDIATE, expression()))]
    if draw(st.booleans()):
        elements.append(draw(vector()))
    piece = joined(elements)
    before = draw(st.sampled_from(["", "", "array"]))
    after = "" if before else draw(st.sampled_from(["", "", "unified"]))
    tokens = [*([before] if before else []), "[", *piece.tokens, "]", *([f".{after}"] if after else [])]
    return Piece(tokens, ptx.Address(piece.value, before, after))


@st.composite
def pair(draw: st.DrawFn) -> Piece:
    """Return two results."""
    pieces = [draw(name()), draw(name())]
    return Piece(joined(pieces, "|").tokens, ptx.Pair(*(piece.value for piece in pieces)))


@st.composite
def negated(draw: st.DrawFn, signs: str = "!-") -> Piece:
    """Return a negated name."""
    sign, piece = draw(st.sampled_from(signs)), draw(PLAIN if signs == "!" else name())
    return Piece([sign, *piece.tokens], ptx.Negated(sign, piece.value))


OPERAND = st.one_of(name(), IMMEDIATE, vector(), address(), pair(), negated(), expression())


@st.composite
def guarded(draw: st.DrawFn) -> Piece:
    """Return a predicate or nothing."""
    piece = draw(st.one_of(st.none(), PLAIN, negated("!")))
    return Piece(["@", *piece.tokens], piece.value) if piece else Piece([], None)


@st.composite
def instruction(draw: st.DrawFn) -> Piece:
    """Return an instruction."""
    guard, opcode = draw(guarded()), draw(st.from_regex(r"(?!call\Z)[a-z][a-z0-9]{1,4}", fullmatch=True))
    modifiers = draw(st.lists(MODIFIER, max_size=3))
    apart = draw(st.booleans())
    word = [opcode, *(f".{each}" for each in modifiers)] if apart else [".".join((opcode, *modifiers))]
    operands = joined(draw(st.lists(OPERAND, max_size=4)))
    return Piece(
        [*guard.tokens, *word, *operands.tokens, ";"],
        ptx.Instruction(opcode, tuple(modifiers), operands.value, guard.value),
    )


@st.composite
def call(draw: st.DrawFn) -> Piece:
    """Return a call."""
    guard, callee = draw(guarded()), draw(PLAIN)
    modifiers = draw(st.sampled_from([(), ("uni",)]))
    results, arguments = (joined(draw(st.lists(st.one_of(PLAIN, IMMEDIATE), max_size=2))) for _ in "12")
    prototype = draw(st.one_of(st.none(), PLAIN))
    tokens = [*guard.tokens, ".".join(("call", *modifiers))]
    if results.tokens:
        tokens += ["(", *results.tokens, ")", ","]
    tokens += callee.tokens
    if arguments.tokens or draw(st.booleans()):
        tokens += [",", "(", *arguments.tokens, ")"]
    if prototype:
        tokens += [",", *prototype.tokens]
    value = ptx.Call(
        callee.value, arguments.value, results.value, prototype and prototype.value, modifiers, guard.value
    )
    return Piece([*tokens, ";"], value)


@st.composite
def typed(draw: st.DrawFn) -> Piece:
    """Return alignment, vector and type."""
    alignment, vector_, spelled = (
        draw(st.sampled_from([0, 0, 4, 16])),
        draw(st.sampled_from(["", "", "v2"])),
        draw(TYPE),
    )
    tokens = [
        *([".align", str(alignment)] if alignment else []),
        *([f".{vector_}"] if vector_ else []),
        f".{spelled}",
    ]
    return Piece(tokens, (alignment, vector_, spelled))  # fmt: skip


@st.composite
def registers(draw: st.DrawFn) -> Piece:
    """Return a `.reg`."""
    kind = draw(typed())
    alignment, vector_, spelled = kind.value
    pieces = []
    for word in draw(st.lists(WORD, min_size=1, max_size=3)):
        count = draw(st.one_of(st.none(), SMALL))
        tokens = [word] if count is None else [word, "<", str(count), ">"]
        pieces.append(Piece(tokens, ptx.Register(word, count)))
    names = joined(pieces)
    return Piece(
        [".reg", *kind.tokens, *names.tokens, ";"], ptx.Registers(spelled, names.value, vector_, alignment)
    )


@st.composite
def extents(draw: st.DrawFn) -> Piece:
    """Return the extents of an array."""
    sizes = tuple(draw(st.lists(st.one_of(st.none(), SMALL), max_size=2)))
    return Piece(
        [token for size in sizes for token in ("[", *([] if size is None else [str(size)]), "]")], sizes
    )


@st.composite
def attributes(draw: st.DrawFn) -> Piece:
    """Return `.attribute` or nothing."""
    found = [
        Piece([".managed"], ptx.Directive("managed")),
        Piece(
            [".unified", "(", "1", ",", "0x2", ")"],
            ptx.Directive("unified", (ptx.Immediate("1"), ptx.Immediate("0x2"))),
        ),
    ]
    chosen = joined(
        draw(st.lists(st.sampled_from(found), max_size=2, unique_by=lambda piece: piece.tokens[0]))
    )
    return Piece([".attribute", "(", *chosen.tokens, ")"], chosen.value) if chosen.tokens else chosen


@st.composite
def initializer(draw: st.DrawFn) -> str:
    """Return an initializer as it is spelled."""
    piece = draw(st.one_of(vector(), IMMEDIATE, expression(), PLAIN))
    return " ".join(piece.tokens)


@st.composite
def declaration(draw: st.DrawFn, *, local: bool) -> Piece:
    """Return a declaration of variables, of parameters of calls as well where it is *local*."""
    linkage = "" if local else draw(LINKAGE)
    space = draw(st.one_of(SPACE, st.just("param")) if local else SPACE)
    attributed, kind = draw(attributes()), draw(typed())
    alignment, vector_, spelled = kind.value
    pieces = []
    for word in draw(st.lists(WORD, min_size=1, max_size=3)):
        count, sizes = draw(st.one_of(st.none(), SMALL)), draw(extents())
        initial = draw(st.one_of(st.just(""), initializer()))
        numbered = [] if count is None else ["<", str(count), ">"]
        tokens = [word, *numbered, *sizes.tokens, *(["=", initial] if initial else [])]
        variable = ptx.Variable(
            word, space, spelled, linkage, alignment, vector_, sizes.value, count, initial, attributed.value
        )
        pieces.append(Piece(tokens, variable))
    names = joined(pieces)
    linked = [f".{linkage}"] if linkage else []
    return Piece(
        [*linked, f".{space}", *attributed.tokens, *kind.tokens, *names.tokens, ";"],
        ptx.Declaration(names.value),
    )


@st.composite
def parameter(draw: st.DrawFn) -> Piece:
    """Return a parameter."""
    space, kind, word, sizes = (
        draw(st.sampled_from(["param", "reg"])),
        draw(typed()),
        draw(WORD),
        draw(extents()),
    )
    alignment, vector_, spelled = kind.value
    pointer = draw(
        st.sampled_from(
            [
                Piece([], None),
                Piece([], None),
                Piece([".ptr"], ptx.Pointer()),
                Piece([".ptr", ".global", ".align", "8"], ptx.Pointer("global", 8)),
                Piece([".align", "8"], ptx.Pointer("", 8, marked=False)),
            ]
        )
    )
    return Piece(
        [f".{space}", *kind.tokens, *pointer.tokens, word, *sizes.tokens],
        ptx.Parameter(word, space, spelled, alignment, vector_, sizes.value, pointer.value),
    )


PARAMETERS = st.lists(parameter(), max_size=3).map(joined)
RESULTS = st.lists(parameter(), max_size=1).map(joined)


@st.composite
def pragma(draw: st.DrawFn) -> Piece:
    """Return a pragma."""
    values = draw(st.lists(STRING, min_size=1, max_size=2))
    return Piece(
        [".pragma", *joined([Piece([f'"{value}"'], value) for value in values]).tokens, ";"],
        ptx.Pragma(tuple(values)),
    )


DIRECTIVES = st.lists(
    st.one_of(
        pragma(),
        st.just(Piece([".noreturn"], ptx.Directive("noreturn"))),
        st.lists(SMALL, min_size=1, max_size=3).map(
            lambda sizes: Piece(
                [".maxntid", *joined([Piece([str(size)], size) for size in sizes]).tokens],
                ptx.Directive("maxntid", tuple(ptx.Immediate(str(size)) for size in sizes)),
            )
        ),
    ),
    max_size=3,
).map(lambda pieces: joined(pieces, ""))


@st.composite
def targets(draw: st.DrawFn) -> Piece:
    """Return a list of targets."""
    label, keyword = draw(WORD), draw(st.sampled_from(["branchtargets", "calltargets"]))
    names = joined(draw(st.lists(PLAIN, min_size=1, max_size=3)))
    return Piece([label, ":", f".{keyword}", *names.tokens, ";"], ptx.Targets(label, keyword, names.value))


@st.composite
def call_prototype(draw: st.DrawFn) -> Piece:
    """Return the prototype of indirect calls."""
    label, results, params, directives = draw(WORD), draw(RESULTS), draw(PARAMETERS), draw(DIRECTIVES)
    tokens = [label, ":", ".callprototype"]
    if results.tokens:
        tokens += enclosed("(", results, ")").tokens
    tokens += ["_", *enclosed("(", params, ")").tokens, *directives.tokens, ";"]
    return Piece(tokens, ptx.CallPrototype(label, results.value, params.value, directives.value))


@st.composite
def location(draw: st.DrawFn) -> Piece:
    """Return a `.loc`."""
    places = [draw(SMALL) for _ in range(3)]
    tokens = [".loc", *map(str, places)]
    if draw(st.booleans()):
        return Piece(tokens, ptx.Location(*places))
    word, offset, outer = draw(PLAIN), draw(st.sampled_from([0, 4])), tuple(draw(SMALL) for _ in range(3))
    tokens += [",", "function_name", *word.tokens, *(["+", str(offset)] if offset else [])]
    tokens += [",", "inlined_at", *map(str, outer)]
    return Piece(tokens, ptx.Location(*places, word.value, offset, outer))


LABEL = WORD.map(lambda word: Piece([word, ":"], ptx.Label(word)))
LINE = st.just(Piece(['#line 1 "a.cu" { ;'], ptx.Line('#line 1 "a.cu" { ;')))
SIMPLE = st.one_of(
    instruction(),
    instruction(),
    call(),
    LABEL,
    registers(),
    declaration(local=True),
    pragma(),
    targets(),
    call_prototype(),
    location(),
    LINE,
)


def blocks(statement: st.SearchStrategy[Piece]) -> st.SearchStrategy[Piece]:
    """Return blocks of statements."""
    inner = st.lists(statement, max_size=4).map(lambda pieces: joined(pieces, ""))
    return inner.map(lambda piece: Piece(enclosed("{", piece, "}").tokens, ptx.Block(piece.value)))


BODY = st.lists(st.recursive(SIMPLE, lambda each: st.one_of(each, blocks(each)), max_leaves=6), max_size=8)


@st.composite
def function(draw: st.DrawFn) -> Piece:
    """Return a function."""
    linkage, kind, word = draw(LINKAGE), draw(st.sampled_from(["func", "entry"])), draw(WORD)
    attributed, results, params, directives = (
        draw(attributes()),
        draw(RESULTS),
        draw(PARAMETERS),
        draw(DIRECTIVES),
    )
    tokens = [*([f".{linkage}"] if linkage else []), f".{kind}", *attributed.tokens]
    if results.tokens:
        tokens += enclosed("(", results, ")").tokens
    tokens.append(word)
    if params.tokens or draw(st.booleans()):
        tokens += enclosed("(", params, ")").tokens
    tokens += directives.tokens
    body = joined(draw(BODY), "")
    defined = draw(st.booleans())
    tokens += enclosed("{", body, "}").tokens if defined else [";"]
    return Piece(
        tokens,
        Heading(
            linkage,
            kind,
            word,
            results.value,
            params.value,
            attributed.value,
            directives.value,
            body.value if defined else (),
        ),
    )


@st.composite
def file(draw: st.DrawFn) -> Piece:
    """Return a `.file`."""
    index, path, times = draw(SMALL), draw(STRING), draw(st.sampled_from([(), (1, 2)]))
    tokens = [".file", str(index), f'"{path}"', *(token for time in times for token in (",", str(time)))]
    return Piece(tokens, ptx.File(index, path, times))


HEADER = Piece(
    [".version", "8.5", ".target", "sm_90", ",", "debug", ".address_size", "64"],
    [
        ptx.Directive("version", (ptx.Immediate("8.5"),)),
        ptx.Directive("target", (ptx.Name("sm_90"), ptx.Name("debug"))),
        ptx.Directive("address_size", (ptx.Immediate("64"),)),
    ],
)
ALIAS = st.tuples(WORD, PLAIN).map(
    lambda pair: Piece([".alias", pair[0], ",", *pair[1].tokens, ";"], ptx.Alias(pair[0], pair[1].value))
)


@st.composite
def module(draw: st.DrawFn) -> tuple[str, list[Any]]:
    """Return the text of a module, and the values of its items; a `Heading` for a function."""
    item = st.one_of(function(), function(), declaration(local=False), file(), pragma(), ALIAS, LINE)
    pieces = draw(st.lists(item, max_size=5))
    tokens = [*HEADER.tokens, *(token for piece in pieces for token in piece.tokens)]
    return draw(spaced(tokens)), [*HEADER.value, *(piece.value for piece in pieces)]
