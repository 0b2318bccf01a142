"""Selects the tests of a change: ctest's list of tests, filtered by the rows of tests/changed.txt for the changed files.

    files = changed_files("HEAD")                    # the paths that differ from a commit
    words = labels_for(files)                        # the rows of tests/changed.txt for them
    tests = select(ctest_list("build"), words)

A test has the labels that CMake gives it, and the name of its folder below tests/ (`unit`, `passes`, `gpu`).

    python3 tests/select_tests.py BASE BUILD…        prints a regular expression for the names of those tests: ctest -R
    python3 tests/select_tests.py --check BUILD ABSENT…
                                                     checks that changed.txt and quick.txt name existing tests and folders,
                                                     or absent ones, such as gpu-* in a build without CUDA
"""

import dataclasses
import fnmatch
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests/changed.txt"
FOR_READERS = re.compile(r"\.md$|^LICENSE$|(^|/)\.[^/]*$")


@dataclasses.dataclass(frozen=True)
class Test:
    name: str
    build: str         # the build folder, as given
    labels: frozenset
    command: tuple     # empty if its program is not built
    properties: dict = dataclasses.field(compare=False) # as ctest lists them


def changed_files(base="HEAD", root=ROOT):
    """Returns the files that differ from the merge base with `base`, untracked ones included; relative to the root."""
    def git(*words):
        return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout.split("\0")
    (left, *_) = git("merge-base", base, "HEAD")
    found = git("diff", "--name-only", "--no-renames", "-z", left.strip())
    found += git("ls-files", "--others", "--exclude-standard", "-z")
    return sorted(set(filter(None, found)))


def read_table(path=TABLE):
    """Returns the rows of tests/changed.txt as [(prefix, [word …])]."""
    lines = (line.split("#")[0].split() for line in path.read_text().splitlines())
    return [(words[0], words[1:]) for words in lines if words]


def labels_for(files, table=None):
    """Returns the words of the rows for these files, in the order of the table: for each file the row with the longest prefix.
    A file without a row may break every test, unless it is documentation."""
    table = table or read_table()
    rows = set()
    for file in files:
        fits = [i for i, (prefix, _) in enumerate(table) if file.startswith(prefix)]
        if fits:
            rows.add(max(fits, key=lambda i: len(table[i][0])))
        elif not FOR_READERS.search(file):
            return ["*"]
    return list(dict.fromkeys(word for i in sorted(rows) for word in table[i][1]))


def ctest_list(build):
    """Returns the tests of a build folder, in ctest's order."""
    done = subprocess.run(["ctest", "--test-dir", str(build), "--show-only=json-v1"], check=True, capture_output=True,
                          text=True)
    tests, top = [], pathlib.Path(build).resolve() / "tests"
    for entry in json.loads(done.stdout)["tests"]:
        properties = {p["name"]: p["value"] for p in entry.get("properties", [])}
        folder = pathlib.Path(properties["WORKING_DIRECTORY"]).resolve().relative_to(top).parts
        labels = {*properties.get("LABELS", []), *folder[:1]}
        tests.append(Test(entry["name"], str(build), frozenset(labels), tuple(entry.get("command", ())),
                          properties))
    return tests


def matches(test, word):
    """Whether a word of the table selects the test: a label of it, or its name (`*` matches anything) in either build."""
    return word in test.labels or fnmatch.fnmatchcase(test.name.removesuffix(".dev"), word)


def select(tests, words):
    """Returns the tests selected by any of the words, in their order."""
    return [test for test in tests if any(matches(test, word) for word in words)]


def unknown(words, tests):
    """Returns the words that select no test: the table is out of date."""
    return [word for word in words if not any(matches(test, word) for test in tests)]


def check(build, *absent):
    """Checks that the tables name tests of the release build, or of a build with all features."""
    tests = ctest_list(build)
    wrong = unknown([word for _, words in read_table() for word in words], tests)
    names = {test.name for test in tests}
    quick = [line for line in (ROOT / "tests/quick.txt").read_text().splitlines() if line and line[0] != "#"]
    wrong += [name for name in quick if name.removesuffix(".dev") not in names]
    wrong = [word for word in wrong if not any(fnmatch.fnmatchcase(word, pattern) for pattern in absent)]
    missing = [prefix for prefix, _ in read_table() if not list(ROOT.glob(f"{prefix}*"))]
    sys.exit("\n".join([f"'{word}' means no test" for word in wrong] + [f"there is no '{prefix}'" for prefix in missing]) or 0)


def main(base, *builds):
    if base == "--check":
        check(*builds)
        return
    try:
        words = labels_for(changed_files(base))
    except subprocess.CalledProcessError as e:
        sys.exit(f"tests/run: --changed: {e.stderr.strip()}")
    names = {test.name for build in builds for test in select(ctest_list(build), words)}
    print("^({})$".format("|".join(map(re.escape, sorted(names)))) if names else "")


if __name__ == "__main__":
    main(*sys.argv[1:])
