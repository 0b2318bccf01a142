#!/usr/bin/env python3
"""Places for single faults in a C file: five kinds, each a function from a function's tokens to its places.

    sign    a + b -> a - b, a += b -> a -= b, -a -> a
    bound   i < n -> i <= n, n - 1 -> n, a && b -> a || b, if (a) -> if (!(a))
    index   a[i] -> a[i + 1], a[i] -> a[k], a[0] -> a[1], f(a, b) -> f(b, a)
    call    f(a); -> nothing
    group   a mesh, an axis, a group, a rank in place of another of the same type in the function; group 0 -> group 1

Places are found in text without comments, strings and preprocessor lines, by tokens and not by a grammar: an invalid
place does not compile, and the caller drops it.  Excluded are code without effect on outputs (messages, logs,
assertions), and comparisons with equal branches at equality, like a < b ? a : b.
"""

import bisect
import dataclasses
import re

TOKEN = re.compile(r"""
    (?P<blank>  \s+ | //(?:[^\n\\]|\\.)* | /\*.*?\*/ | \#(?:[^\n\\]|\\.)* )
  | (?P<string> "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' )
  | (?P<name>   [A-Za-z_]\w* )
  | (?P<number> \.?\d(?:[eEpP][+-]|[\w.])* )
  | (?P<sign>   <<<|>>>|<<=|>>=|\.\.\.|->|\+\+|--|&&|\|\||[-+*/%&|^<>=!]=|<<|>>|. )
""", re.X | re.S)

# Their arguments are messages, or are not compiled in a release build.
MESSAGES = re.compile(r"assert|static_assert|BUG|diag_\w+|nnrt_say\w*|nnrt_fail\w*|nnrt_error\w*|f?printf|perror|"
                      r"luaL_error|\w*_error|fail|fail_at|refuse")
# Words in the names of functions and files that only produce messages.
TALK = {"error", "errors", "fail", "failed", "refuse", "say", "says", "help", "usage", "explain", "why", "describe",
        "report", "hint", "hints", "title", "titles", "dump", "warn", "log", "progress", "diag",
        "clock", "clocks", "conflict", "measure", "tune", "watch", "message", "complain"}
# Calls that never change a result: they free memory, measure time, or lock.
NO_CALL = re.compile(r"assert|static_assert|BUG|free|\w*_free|\w*close\w*|\w*destroy\w*|(\w*_)?(un)?lock|\w*_say\w*|diag_\w+|\w*log\w*|"
                     r"\w*trace\w*|\w*progress\w*|f?printf|fflush|\w*prefetch\w*|\w*reserve\w*|va_\w+|lua_pop|lua_settop|"
                     r"nnrt_gpu_mark|madvise|qsort|nnrt_end_job|_?exit|sched_yield|unlink|return|sizeof|switch|while|for|if|"
                     r"luaL_check\w*|lua_check\w*|setvbuf|signal|__\w+")
COMMUTES = re.compile(r"\w*(min|max|equal|same|alike|gcd|lcm|swap|multipl|product|common|both|either|meet|hypot|compare)\w*|"
                      r"for_each\w*|add|mul", re.I)
# Floating-point values: < and <= are rarely distinguishable.
REAL = re.compile(r"best|cost|second|time|price|gap|gain|eps|load|ratio|fraction|least|most|score|bound|limit|now|"
                  r"loss|worth|\d\.|e-|INFINITY|double|float|peak", re.I)
KEYWORDS = set("if else for while do switch case default return goto break continue sizeof typedef struct enum union "
               "static const extern inline void".split())
INTEGERS = {"int", "int64_t", "size_t", "uint32_t", "uint64_t", "int32_t"}
# Words in the names of ranks, groups and meshes.
GROUP_WORDS = {"a", "axis", "axes", "group", "groups", "rank", "ranks", "mesh", "meshes", "peer", "root", "place", "stage", "coord",
               "to", "from", "device", "devices", "member", "host", "have", "want", "src", "dst", "sender", "reader", "here", "there",
               "me", "source", "target", "layout", "before", "first", "last", "pair", "link", "node", "other"}
GROUP_TYPES = re.compile(r".*(Layout|Mesh|Group|Sbp|Rank|Axis|Place|Device)\b.*")
GROUP_CALLS = {"group", "groups", "axis", "mesh", "rank", "ranks", "reduce", "gather", "scatter", "layout", "peer", "stage", "sbp", "coord"}
GROUP_FIELDS = {"from": "to", "to": "from", "have": "want", "want": "have", "n_from": "n_to", "n_to": "n_from", "src": "dst",
                "dst": "src", "me": "n"}


@dataclasses.dataclass(frozen=True)
class Token:
    kind: str
    text: str
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class Fault:
    kind: str
    variant: str
    start: int     # text[start:end] becomes `new`
    end: int
    new: str

    def applied(self, text):
        return text[:self.start] + self.new + text[self.end:]


def tokens_of(text):
    return [Token(m.lastgroup, m[0], m.start(), m.end()) for m in TOKEN.finditer(text) if m.lastgroup != "blank"]


def words_of(name):
    return set(re.findall(r"[a-z]+|[A-Z][a-z]*", name))


class Function:
    """A function's tokens, its parameters first; the matching brackets; and its declarations with their scopes."""

    def __init__(self, name, tokens, body):
        self.name, self.t, self.body = name, tokens, body
        self.match, self.blocked, self.declared, self.scope_start = {}, set(), [], {}
        stack = []
        for i, token in enumerate(tokens):
            if token.text in ("(", "[", "{"):
                stack.append(i)
            elif token.text in (")", "]", "}") and stack:
                self.match[stack.pop()] = i
        self.opens = {close: at for at, close in self.match.items()}
        for i in range(len(tokens) - 1):
            if tokens[i].kind == "name" and self.text(i + 1) == "(" and MESSAGES.fullmatch(tokens[i].text):
                self.blocked.update(range(i, self.match.get(i + 1, i) + 1))
        self.find_declared()

    def text(self, i):
        return self.t[i].text if 0 <= i < len(self.t) else ""

    def kind(self, i):
        return self.t[i].kind if 0 <= i < len(self.t) else ""

    def is_operand_end(self, i):
        return self.kind(i) in ("name", "number") and self.text(i) not in KEYWORDS or self.text(i) in (")", "]")

    def opening(self, i):
        """Returns the innermost round bracket around token i."""
        return max((at for at, close in self.match.items() if self.text(at) == "(" and at < i < close), default=0)

    def starts_statement(self, i):
        """Whether a statement can begin here: after another, or after the condition of one."""
        before = self.text(i - 1)
        if before == ")":
            return self.text(self.opens.get(i - 1, 0) - 1) in ("if", "for", "while") or \
                self.text(self.opens.get(i - 1, 0) - 1).startswith("for_each")
        return before in ("{", "}", ";", "else", ":")

    def declare(self, i, end):
        """Records the declarators of a declaration at i, if there is one.  A `for` may begin it."""
        while self.text(i) in ("const", "static", "unsigned", "struct"):
            i += 1
        if self.kind(i) != "name" or self.text(i) in KEYWORDS:
            return
        base, i = self.text(i), i + 1
        while i < end:
            stars = 0
            while self.text(i) in ("*", "const"):
                stars += self.text(i) == "*"
                i += 1
            if self.kind(i) != "name" or self.text(i + 1) not in ("=", ";", ",", ")", "["):
                return
            at = i
            self.declared.append((at, self.text(at), base + "*" * (stars + (self.text(at + 1) == "["))))
            while i < end and self.text(i) not in (",", ";", ")"):
                i = self.match.get(i, i) + 1 # skips brackets
            self.scope_start[at] = i # a variable is not visible in its own initializer
            if self.text(i) != ",":
                return
            i += 1

    def find_declared(self):
        close = self.match.get(1, 1)
        at = 2
        while at < close: # one declarator per parameter
            end = at
            while end < close and self.text(end) != ",":
                end = self.match.get(end, end) + 1
            self.declare(at, min(end, at + 8))
            # After the comma, the next parameter has a type of its own.
            self.declared = [d for d in self.declared if d[0] < end]
            at = end + 1
        for i in range(self.body + 1, len(self.t)):
            if self.text(i - 1) in ("{", "}", ";") or (self.text(i - 1) == "(" and self.text(i - 2) == "for"):
                self.declare(i, len(self.t))
        blocks = sorted((at, close) for at, close in self.match.items() if self.text(at) == "{")
        self.scope_end = {at: min((close for open_, close in blocks if open_ < at < close), default=len(self.t))
                          for at, _, _ in self.declared}

    def visible(self, i):
        """Returns {name: type} of the variables in scope at token i."""
        return {name: kind for at, name, kind in self.declared if self.scope_start[at] < i <= self.scope_end[at]}


def functions_of(text):
    """Returns the functions of a file, except those that only produce messages."""
    tokens, found, i = tokens_of(text), [], 0
    opens, stack = {}, []
    for k, token in enumerate(tokens):
        if token.text in ("(", "{"):
            stack.append(k)
        elif token.text in (")", "}") and stack:
            opens[k] = stack.pop()
    closes = {at: close for close, at in opens.items()}
    while i < len(tokens):
        if tokens[i].text == "{":
            if i and tokens[i - 1].text == ")" and i in closes:
                name = opens[i - 1] - 1
                whole = tokens[name:closes[i] + 1]
                if not words_of(tokens[name].text) & TALK:
                    found.append(Function(tokens[name].text, whole, i - name))
            elif i and tokens[i - 1].kind == "string": # extern "C" {
                i += 1
                continue
            i = closes.get(i, i)
        i += 1
    return found


def replace(f, kind, variant, i, new, to=None):
    return Fault(kind, variant, f.t[i].start, f.t[i if to is None else to].end, new)


def signs(f):
    for i in range(f.body, len(f.t)):
        text = f.text(i)
        small = "e-" in f.text(i + 1) or "e-" in f.text(i - 1)
        if i in f.blocked or small:
            continue
        if text in ("+", "-") and f.is_operand_end(i - 1):
            yield replace(f, "sign", "binary", i, "-" if text == "+" else "+")
        elif text in ("+=", "-="):
            yield replace(f, "sign", "assignment", i, "-=" if text == "+=" else "+=")
        elif text == "-" and f.text(i - 1) != ")":
            yield replace(f, "sign", "unary", i, "")


def either_way_is_the_same(f, i):
    """Whether both branches agree at equality: a < b ? a : b, and if (a < b) b = a."""
    operands = {f.text(i - 1), f.text(i + 1)}
    k = i
    while k < len(f.t) and f.text(k) not in ("?", ";", "{", ","):
        if f.text(k) == ")" and f.opens.get(k, i) < i:
            return bool(operands & {f.text(k + 1)}) and f.text(k + 2) == "="
        k += 1
    return f.text(k) == "?" and bool(operands & {t.text for t in f.t[k + 1:k + 5]})


def bounds(f):
    is_comparator = "void" in [t.text for t in f.t[:f.body]][:6] and f.text(2) == "const"
    swap = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
    for i in range(f.body, len(f.t)):
        text = f.text(i)
        if i in f.blocked:
            continue
        if text in swap and f.is_operand_end(i - 1) and not is_comparator:
            declared = f.visible(i)
            near = [f.text(k) for k in range(i - 5, i + 6)]
            near_types = [declared[n] for n in near if n in declared]
            if not any(REAL.search(x) for x in near + near_types) and not either_way_is_the_same(f, i):
                yield replace(f, "bound", "relation", i, swap[text])
        elif text == "-" and f.text(i + 1) == "1" and f.is_operand_end(i - 1):
            yield replace(f, "bound", "minus one", i, "", i + 1)
        elif text in ("&&", "||") and f.text(i - 1) != "(":
            yield replace(f, "bound", "and or", i, "||" if text == "&&" else "&&")
        elif text == "if" and f.text(i + 1) == "(":
            close = f.match[i + 1]
            inner = f.t[i + 2:close]
            if inner:
                yield Fault("bound", "negated", f.t[i + 1].start, f.t[close].end, None)


def arguments(f, at):
    """Returns [(first, last)] of the arguments of the call whose bracket opens at token `at`."""
    close, first, i, found = f.match.get(at, at), at + 1, at + 1, []
    while i <= close:
        if i == close or f.text(i) == ",":
            found.append((first, i - 1))
            first = i + 1
        i = f.match.get(i, i) + 1
    return found


def swaps(f, i):
    """Exchanges two adjacent arguments of one type."""
    list_ = arguments(f, i + 1)
    declared = f.visible(i)
    for (a, b), (c, d) in zip(list_, list_[1:]):
        both = [f.text(a), f.text(c)]
        names = a == b and c == d and all(n in declared for n in both) and declared[both[0]] == declared[both[1]]
        fields = b == a + 2 and d == c + 2 and f.text(a + 1) in (".", "->") and f.text(b) == f.text(d)
        if (names or fields) and both[0] != both[1]:
            first, second = [t.text for t in f.t[a:b + 1]], [t.text for t in f.t[c:d + 1]]
            yield replace(f, "index", "arguments", a, "".join(second) + ", " + "".join(first), d)


def indices(f):
    declares = {at for at, _, _ in f.declared}
    for i in range(f.body, len(f.t)):
        if i in f.blocked:
            continue
        if f.kind(i) == "name" and f.text(i + 1) == "(" and f.text(i) not in KEYWORDS:
            if not COMMUTES.fullmatch(f.text(i)):
                yield from swaps(f, i)
        if f.text(i) != "[" or not f.is_operand_end(i - 1) or i - 1 in declares or i not in f.match:
            continue
        close = f.match[i]
        inner = [t.text for t in f.t[i + 1:close]]
        if not inner or any(t.kind == "string" for t in f.t[i + 1:close]):
            continue
        if inner == ["0"]:
            yield replace(f, "index", "zero", i + 1, "1")
        elif inner[-2:] in (["-", "1"], ["+", "1"]):
            yield replace(f, "index", "off by one", close - 2, "", close - 1)
        elif not (len(inner) == 1 and (f.kind(i + 1) == "number" or inner[0].isupper())):
            yield replace(f, "index", "off by one", close - 1, f.text(close - 1) + " + 1")
        if len(inner) == 1:
            declared = f.visible(i)
            mine = declared.get(inner[0])
            for name, kind in declared.items():
                if kind == mine and kind in INTEGERS and name != inner[0] and len(name) <= 2:
                    yield replace(f, "index", "other index", i + 1, name)


def calls(f):
    if words_of(f.name) & {"free", "close", "destroy", "end", "shutdown"}:
        return
    for i in range(f.body + 1, len(f.t)):
        if f.kind(i) != "name" or i in f.blocked or not f.starts_statement(i) or f.text(i) in KEYWORDS:
            continue
        at = i + 1
        while f.text(at) in (".", "->") and f.kind(at + 1) == "name":
            at += 2
        if f.text(at) != "(" or f.text(f.match.get(at, at) + 1) != ";" or NO_CALL.fullmatch(f.text(at - 1)):
            continue
        if [f.text(f.match[at] - 2), f.text(f.match[at] - 1)] == [",", "NULL"] and f.text(at - 1) == "vec_push":
            continue # the arena's zeros terminate the list, too
        yield Fault("call", "missing", f.t[i].start, f.t[f.match[at] + 1].end, "{}")


def is_group(name, kind):
    return kind in INTEGERS and bool(words_of(name) & GROUP_WORDS) or bool(GROUP_TYPES.match(kind))


def groups(f):
    if words_of(f.name) & {"same", "equal", "equals", "alike", "compare"}:
        return # the compared objects have the same counts
    declares = {at for at, _, _ in f.declared}
    for i in range(f.body, len(f.t)):
        if i in f.blocked or i in declares or f.kind(i) not in ("name", "number"):
            continue
        text, before, after = f.text(i), f.text(i - 1), f.text(i + 1)
        if before in (".", "->"):
            if text in GROUP_FIELDS and f.is_operand_end(i - 2) and after not in ("=", "("): # no {.from = x}
                yield replace(f, "group", "field", i, GROUP_FIELDS[text])
            continue
        if f.kind(i) == "number":
            if text not in ("0", "1") or before not in ("(", ",") or after not in (")", ","):
                continue
            called = words_of(f.text(f.opening(i) - 1))
            if called & GROUP_CALLS and not called & {"cost", "seconds", "price"}:
                yield replace(f, "group", "number", i, "1" if text == "0" else "0")
            continue
        declared = f.visible(i)
        if text not in declared or after in ("=", "++", "--", "(", "+=", "-=") or before in ("++", "--", "&"):
            continue
        mine = declared[text]
        if not is_group(text, mine):
            continue
        # A loop that tests another variable than it increments does not end.
        if any(at < i < f.match.get(head, 0) for at, name, _ in f.declared if name == text
               for head in [f.opening(at)] if f.text(head - 1) == "for"):
            continue
        for name, kind in declared.items():
            if name != text and kind == mine and is_group(name, kind):
                yield replace(f, "group", "other", i, name)


KINDS = {"sign": signs, "bound": bounds, "index": indices, "call": calls, "group": groups}


def faults_of(text, kind):
    """Returns all faults of a kind in a file's text, in order."""
    found = []
    for f in functions_of(text):
        for fault in KINDS[kind](f):
            if fault.new is None: # an inverted condition
                fault = dataclasses.replace(fault, new="(!" + text[fault.start:fault.end] + ")")
            found.append(fault)
    return found


def code_lines(text):
    """Returns the number of lines with code."""
    starts = [0] + [m.end() for m in re.finditer("\n", text)]
    return len({bisect.bisect(starts, t.start) for t in tokens_of(text)})


SELF_CHECK = {
    "sign": ("int f(int a) { int b = a + 1; // a + 2\n b += -a; return b; }",
             ["int b = a - 1;", "b -= -a;", "b += a;"]),
    "bound": ('void f(int n) { for (int i = 0; i < n - 1; i++) if (i && n) diag_error("i < n", n < 2); }',
              ["i <= n - 1", "i < n ;", "i || n", "if (!(i && n))"]),
    "index": ("int f(int *p, int i, int k) { return p[i] + p[0] + g(i, k); }",
              ["p[i + 1]", "p[k]", "p[1]", "g(k, i)"]),
    "call": ("void f(int a) { int n = g(a); if (a) g(n); free(p); n = g(2); assert(a); h->run(a); }",
             ["if (a) {}", "assert(a); {} }"]),
    "group": ("void f(Mesh *here, Mesh *there, int rank) { send(here, rank); rank_of(0, 2); here->from; }",
              ["send(there, rank)", "rank_of(1, 2)", "here->to;"]),
}


def self_check():
    """Tests every kind on a line of code: the expected mutants exist, and none in a message or comment."""
    for kind, (text, expected) in SELF_CHECK.items():
        found = [fault.applied(text) for fault in faults_of(text, kind)]
        for piece in expected:
            assert sum(piece in mutant for mutant in found) == 1, (kind, piece, found)
        others = [m for m in found if not any(piece in m for piece in expected)]
        assert kind in ("index", "group") or not others, (kind, others)
    text = 'extern "C" {\n#define F(x) (x + \\\n 1)\nint f(int a) { return a /* + 1 */ - \'-\'; }\n}'
    assert [f.applied(text) for f in faults_of(text, "sign")] == [text.replace("- '-'", "+ '-'")]


if __name__ == "__main__":
    self_check()
    print("the places are found")
