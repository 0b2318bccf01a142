"""Rows: every supported kind of .npy gives the same training, every other is refused.

The rows of a step are a function of seed, epoch and sample: observed here through the loss of a program that does not
learn (--lr 0).
"""

import struct

from common import check, finish, folder_with_data, log, losses, npy, refused, run, train

with folder_with_data():
    raw = open("x.npy", "rb").read()
    x = struct.unpack("<500f", raw[-2000:])
    y = struct.unpack("<100q", open("y.npy", "rb").read()[-800:])
    train("line1", "--steps", 12, "--log", "want.jsonl")
    want = losses("want.jsonl")

    def same(what, *inputs):
        done = run("line1", *inputs, "--steps", 12, "--log", "got.jsonl")
        check(f"{what} is read", done.returncode == 0 and losses("got.jsonl") == want, done.stderr)

    npy("big.npy", x, (100, 5), ">f4")
    npy("bigy.npy", y, (100,), ">i8")
    npy("y32.npy", y, (100,), "<i4")
    npy("bigy32.npy", y, (100,), ">i4")
    npy("v2.npy", x, (100, 5), version=2)
    npy("v3.npy", x, (100, 5), version=3)
    npy("long.npy", x, (100, 5), body=raw[-2000:] + b"more")
    same("big-endian", "--input", "x=big.npy", "--input", "labels=bigy.npy")
    same("labels of int32", "--input", "x=x.npy", "--input", "labels=y32.npy")
    same("labels of big-endian int32", "--input", "x=x.npy", "--input", "labels=bigy32.npy")
    same("version 2", "--input", "x=v2.npy", "--input", "labels=y.npy")
    same("version 3", "--input", "x=v3.npy", "--input", "labels=y.npy")
    same("a file with more behind", "--input", "x=long.npy", "--input", "labels=y.npy")
    # Files of other types than the input's train as the same numbers in its type.
    def losses_of(x_file, labels):
        done = run("line1", "--input", f"x={x_file}", "--input", f"labels={labels}", "--steps", 9, "--log", "of.jsonl")
        check(f"{x_file} and {labels} are read", done.returncode == 0, done.stderr)
        return losses("of.jsonl"), done.stderr

    positive = [abs(v) for v in y]
    small = [i % 7 for i in range(500)]
    npy("positive.npy", positive, (100,), "<i8")
    npy("f32.npy", small, (100, 5))
    for descr in "<u2", ">u2", "|u1":
        npy("few.npy", positive, (100,), descr)
        check(f"labels of {descr}", losses_of("x.npy", "few.npy")[0] == losses_of("x.npy", "positive.npy")[0])
    for descr, name, code in ("<f8", "f64", "<500d"), (">f8", "f64", ">500d"), ("<f2", "f16", "<500e"), ("|u1", "u8", "500B"):
        npy("other.npy", (), (100, 5), descr, body=struct.pack(code, *small))
        got, said = losses_of("other.npy", "y.npy")
        check(f"{descr} becomes f32", got == losses_of("f32.npy", "y.npy")[0])
        check(f"{descr}: and says so", f"--input x=other.npy: the file's {name} becomes the input's f32" in said, said)
    npy("part0.npy", small[:250], (50, 5))
    npy("part1.npy", (), (50, 5), "<f8", body=struct.pack("<250d", *small[250:]))
    got, said = losses_of("part*.npy", "y.npy")
    check("one of two files becomes f32", got == losses_of("f32.npy", "y.npy")[0] and "x=part1.npy: the file's f64 becomes" in said, said)
    npy("one.npy", y, (100,), "<i8", fortran=True)
    same("one dimension in Fortran order", "--input", "x=x.npy", "--input", "labels=one.npy")

    def bad(what, said, **how):
        npy("bad.npy", **how)
        refused(what, said, "line1", "--input", "x=bad.npy", "--input", "labels=y.npy")

    npy("column.npy", y, (100, 1), "<i8")
    refused("labels in a column", "take it away with numpy's squeeze", "line1", "--input", "x=x.npy", "--input",
            "labels=column.npy")
    npy("one_hot.npy", x, (100, 5))
    refused("labels as one-hot rows", "numpy's argmax makes them of one-hot rows", "line1", "--input", "x=x.npy", "--input",
            "labels=one_hot.npy")

    bad("Fortran order", "Fortran order", values=x, shape=(100, 5), fortran=True)
    bad("i32 for f32", "the input's type is f32, the file's i32", values=[0] * 500, shape=(100, 5), descr="<i4")
    bad("a dimension too few", "the input is f32[16,5], the file f32[500]", values=x, shape=(500,))
    bad("another row length", "the input is f32[16,5], the file f32[125,4]", values=x, shape=(125, 4))
    bad("other row counts", "an input before it 50", values=x[:250], shape=(50, 5))
    bad("no rows", "there are no rows", values=[], shape=(0, 5))
    bad("truncated", "is truncated: its shape needs 2000 bytes, there are 1996", values=x, shape=(100, 5), body=raw[-1996:])
    bad("a shape that overflows", "too large", values=x, shape=(1 << 62, 5))
    bad("a negative dimension", "damaged header", values=x, shape=(-100, 5))
    bad("records", "records", values=x, shape=(100, 5), header="{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (100, 5), }")
    bad("objects", "'|O'", values=x, shape=(100, 5), descr="|O", body=b"")
    bad("text", "'<U5'", values=x, shape=(100, 5), descr="<U5", body=b"")
    bad("no order", "damaged header", values=x, shape=(100, 5), header="{'descr': '<f4', 'shape': (100, 5), }")
    bad("a shape twice", "damaged header", values=x, shape=(100, 5),
        header="{'descr': '<f4', 'fortran_order': False, 'shape': (100, 5), 'shape': (1, 5), }")
    bad("version 9", "version 9", values=x, shape=(100, 5), version=9)
    for n in 0, 5, 9, 40:
        open("bad.npy", "wb").write(raw[:n])
        refused(f"{n} bytes", "'bad.npy' is", "line1", "--input", "x=bad.npy", "--input", "labels=y.npy")
    refused("a folder", "it is not a file", "line1", "--input", "x=.", "--input", "labels=y.npy")
    npy("y1000.npy", [*y[:40], 1000, *y[41:]], (100,), "<i8")
    refused("a label out of range", "step 3: linear  line.onnx:/fc/Gemm: an index is out of range: label 1000",
            "line1", "--input", "x=x.npy", "--input", "labels=y1000.npy")

    # Without learning a step's loss identifies its rows.  100 rows: step 25 is step 0 again.
    def order(*flags, program="line1", steps=50, **data):
        train(program, "--lr", 0, "--steps", steps, "--log", "order.jsonl", *flags, **data)
        return [norm for _, _, norm in losses("order.jsonl")]

    plain, shuffled = order(), order("--shuffle", 5)
    check("rows come modulo their number", plain[:25] == plain[25:] and len(set(plain)) == 25)
    check("shuffling is another order, another every epoch", len(set(plain + shuffled)) == 75)
    check("the same seed is the same order", order("--shuffle", 5) == shuffled)
    check("another seed is another order", not set(order("--shuffle", 6)) & set(shuffled))
    # Every row once an epoch: with 96 rows, 6 steps have the same sum in any order.
    npy("x96.npy", x[:480], (96, 5))
    npy("y96.npy", y[:96], (96,), "<i8")
    def sums(*flags):
        run("line1", "--input", "x=x96.npy", "--input", "labels=y96.npy", "--lr", 0, "--steps", 12, "--seed", 1,
            "--eval-input", "x=x96.npy", "--eval-input", "labels=y96.npy", "--log", "sum.jsonl", *flags)
        lines = log("sum.jsonl")
        return sum(l["loss"] for l in lines[:6]), sum(l["loss"] for l in lines[6:])
    a, b = sums(), sums("--shuffle", 9)
    check("an epoch reads every row once", max(abs(p - q) for p, q in zip(a, b)) < 1e-4 * a[0] + 0.06, a, b)

    # On four ranks, with other groups of rows, each step still reads the same rows.
    four = order("--shuffle", 5, program="line4")
    check("rows do not depend on ranks", max(abs(p - q) / p for p, q in zip(four, shuffled)) < 1e-5)

    # Several files of an input: their rows follow each other.
    npy("x_1.npy", x[:35], (7, 5))
    npy("x_2.npy", x[35:], (93, 5), "<f8")
    npy("x_[1].npy", x[:35], (7, 5))
    same("rows of two files", "--input", "x=x_1.npy", "--input", "x=x_2.npy", "--input", "labels=y.npy")
    same("rows of a pattern", "--input", "x=x_?.npy", "--input", "labels=y.npy")
    same("a name like a pattern", "--input", "x=x_[1].npy", "--input", "x=x_2.npy", "--input", "labels=y.npy")
    check("rows of two files, shuffled on four ranks",
          order("--shuffle", 5, "--input", "x=x_1.npy", "--input", "x=x_2.npy", "--input", "labels=y.npy", program="line4",
                data=[]) == four)

    # Tokens: 503 of them are 100 rows of 5; a plain x of the same rows is the same training.
    ids = [(7 * i * i + i) % 50 for i in range(503)]
    npy("rows.npy", ids[:500], (100, 5), "<i4")

    def tokens(*flags):
        done = run("tokens1", *flags, "--input", "labels=y.npy", "--lr", 1e-4, "--steps", 12, "--log", "t.jsonl")
        return losses("t.jsonl") if done.returncode == 0 else done.stderr

    want = tokens("--input", "x=rows.npy")
    for descr in "<i4", "<i8", "<u2", "<u4", "|u1", ">u2", ">i8":
        npy("ids.npy", ids, (503,), descr)
        check(f"tokens of {descr}", tokens("--tokens", "x=ids.npy") == want, tokens("--tokens", "x=ids.npy"))

    # .bin: tokens of 16 bits as nanoGPT writes them, or after the header of llm.c, of 16 or 32 bits.
    def header(magic, version, n):
        return struct.pack("<256i", magic, version, n, *[0] * 253)

    for name, data in (("nanoGPT's", struct.pack("<503H", *ids)),
                       ("llm.c's", header(20240520, 1, 503) + struct.pack("<503H", *ids)),
                       ("llm.c's of 32 bits", header(20240801, 7, 503) + struct.pack("<503I", *ids))):
        open("ids.bin", "wb").write(data)
        check(f"{name} .bin", tokens("--tokens", "x=ids.bin") == want, tokens("--tokens", "x=ids.bin"))
    for said, data in (("has 3 bytes, and no tokens of 16 bits have", b"abc"),
                       ("is truncated: its header says 9 tokens", header(20240520, 1, 9) + b"1234567890"),
                       ("is of version 2 of llm.c's format, not 1", header(20240520, 2, 9)),
                       ("0 tokens do not fill one row", b"")):
        open("ids.bin", "wb").write(data)
        refused(said, said, "tokens1", "--tokens", "x=ids.bin", "--input", "labels=y.npy")

    # Several files are divided into rows separately.
    npy("part_b.npy", ids[205:503], (298,), "<i4")
    open("part_a.bin", "wb").write(struct.pack("<207H", *ids[:205], 1, 2))
    parts = tokens("--tokens", "x=part_a.bin", "--tokens", "x=part_b.npy")
    check("tokens of two files", parts == want, parts)
    check("tokens of a pattern", tokens("--tokens", "x=part_*") == want)
    refused("a pattern without files", "--input x=none*.npy: no file is named like this", "line1", "--input", "x=none*.npy")
    refused("rows and tokens", "input 'x' is given both as rows and as tokens", "tokens1", "--input", "x=rows.npy",
            "--tokens", "x=ids.bin")

    def bad_tokens(what, said, program="tokens1", **how):
        npy("ids.npy", **how)
        refused(what, said, program, "--tokens", "x=ids.npy", "--input", "labels=y.npy")

    bad_tokens("tokens of f32", "a stream of tokens is one dimension", values=x, shape=(500,))
    bad_tokens("tokens in rows", "a stream of tokens is one dimension", values=ids[:500], shape=(100, 5), descr="<i4")
    bad_tokens("too few tokens", "4 tokens do not fill one row of 5", values=ids[:4], shape=(4,), descr="<i4")
    bad_tokens("tokens for floats", "tokens are for an input of integers", program="line1", values=ids, shape=(503,), descr="<i4")
    bad_tokens("a token that does not fit", "4294967295 does not fit", values=[2**32 - 1] * 500, shape=(500,), descr="<u4")

finish()
