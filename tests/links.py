"""Checks that the relative links of all READMEs exist, and the paths with a folder that they quote in backquotes."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def main():
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True)
    files = [ROOT / name for name in listed.stdout.splitlines()] or sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("*/**/*.md"))
    bad, seen = [], 0
    for file in files:
        text = re.sub(r"^    .*$", "", file.read_text(), flags=re.M)  # without code
        for link in re.findall(r"\]\(([^)#\s]+)", text):
            if "://" in link:
                continue
            seen += 1
            if not (file.parent / link).exists():
                bad.append(f"{file.relative_to(ROOT)}: there is no {link}")
    print("\n".join(bad) or f"{seen} links, all to files that exist")
    sys.exit(bool(bad) or seen < 50)


if __name__ == "__main__":
    main()
