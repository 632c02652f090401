"""RecordIO for any bytes: what MXNet's own reader and writer make of ours, and we of theirs."""

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rn50.data.recordio import (
    MAGIC,
    IndexedRecordReader,
    IndexedRecordWriter,
    decode_record,
    encode_image,
    encode_record,
    image_bytes,
)

# Bytes in which the magic word, whole and in pieces, stands far more often than chance would have it.
PAYLOADS = st.lists(
    st.one_of(st.just(MAGIC), st.just(MAGIC[:3]), st.just(MAGIC[1:]), st.binary(max_size=9)), max_size=12
).map(b"".join)
LABELS = st.integers(0, 999)
IMAGES = st.lists(st.tuples(LABELS, PAYLOADS), min_size=1, max_size=8)


@given(PAYLOADS)
def test_what_is_encoded_is_decoded(payload):
    encoded = encode_record(payload)
    assert decode_record(encoded, 0, len(encoded)) == (payload, len(encoded))
    assert decode_record(b"1234" + encoded + encoded, 4, 4 + len(encoded)) == (payload, 4 + len(encoded))


@given(st.integers(0, 2**64 - 1), LABELS, PAYLOADS)
def test_an_image_is_the_record_of_its_header_and_bytes(key, label, image):
    encoded = encode_image(key, label, image)
    assert encoded == encode_record(struct.pack("<IfQQ", 0, label, key, 0) + image)
    is_whole = encoded[7] >> 5 == 0  # the flag of its first part
    assert (len(encoded) == image_bytes(len(image))) == is_whole and len(encoded) >= image_bytes(len(image))


@given(PAYLOADS)
def test_the_magic_word_stands_at_the_start_of_parts_alone(payload):
    encoded = encode_record(payload)
    position = 0
    while position < len(encoded):
        assert encoded[position : position + 4] == MAGIC
        length = struct.unpack_from("<I", encoded, position + 4)[0] & (1 << 29) - 1
        words = [encoded[at : at + 4] for at in range(position + 8, position + 8 + length, 4)]
        assert MAGIC not in words
        position += 8 + length + -length % 4
    assert position == len(encoded)


@given(PAYLOADS, st.data())
def test_a_record_that_is_cut_short_is_refused(payload, data):
    encoded = encode_record(payload)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(ValueError):
        decode_record(encoded[:cut], 0, cut)


@given(PAYLOADS, st.data())
def test_a_flipped_bit_in_what_frames_a_record_is_refused_or_moves_its_end(payload, data):
    encoded = bytearray(encode_record(payload))
    bit = data.draw(st.integers(0, 63))  # of the magic and length words
    encoded[bit // 8] ^= 1 << bit % 8
    with contextlib.suppress(ValueError):
        assert decode_record(bytes(encoded), 0, len(encoded)) != (payload, len(encoded))


@settings(max_examples=60, deadline=None)
@given(IMAGES)
def test_mxnet_reads_what_we_write(tmp_path_factory, images):
    recordio = pytest.importorskip("implementations.mxnet").mx.recordio
    prefix = tmp_path_factory.mktemp("ours") / "set"
    with IndexedRecordWriter(prefix) as writer:
        for key, (label, image) in enumerate(images):
            writer.write(key, label, image)
    theirs = recordio.MXIndexedRecordIO(f"{prefix}.idx", f"{prefix}.rec", "r")
    for key in reversed(range(len(images))):
        header, image = recordio.unpack(theirs.read_idx(key))
        assert (header.label, header.id, image) == (images[key][0], key, images[key][1])
    theirs.close()
    in_sequence = recordio.MXRecordIO(f"{prefix}.rec", "r")
    assert [recordio.unpack(in_sequence.read())[1] for _ in images] == [image for _, image in images]
    assert in_sequence.read() is None
    in_sequence.close()


@settings(max_examples=60, deadline=None)
@given(IMAGES)
def test_we_read_what_mxnet_writes_and_write_the_same(tmp_path_factory, images):
    recordio = pytest.importorskip("implementations.mxnet").mx.recordio
    prefix = tmp_path_factory.mktemp("theirs") / "set"
    theirs = recordio.MXIndexedRecordIO(f"{prefix}.idx", f"{prefix}.rec", "w")
    for key, (label, image) in enumerate(images):
        theirs.write_idx(key, recordio.pack(recordio.IRHeader(0, label, key, 0), image))
    theirs.close()
    written = prefix.with_suffix(".rec").read_bytes()
    assert written == b"".join(encode_image(key, label, image) for key, (label, image) in enumerate(images))
    with IndexedRecordReader(prefix.with_suffix(".rec"), prefix.with_suffix(".idx")) as reader:
        bounds = [*reader.offsets.tolist(), len(written)]
        for key, (label, image) in enumerate(images):
            assert reader.read(key) == ((0, label, key, 0), image)
            record, end = decode_record(written, bounds[key], bounds[key + 1])
            assert record[24:] == image and end == bounds[key + 1]
