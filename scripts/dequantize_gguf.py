"""A float32 copy of a GGUF file: ``python scripts/dequantize_gguf.py MODEL.gguf COPY.gguf``. Needs ``gguf``.

llama.cpp computes with quantized weights in another way than with their values; with this copy it computes with the
same float32 numbers as vLLM and ``transformers`` do with the checkpoint of ``scripts/greedy_reference.py``.
"""

from __future__ import annotations

import sys

import gguf


def main() -> None:
    source, target = sys.argv[1:]
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], inner)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
