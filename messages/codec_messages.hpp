#pragma once

#include "messages/codec_packer.hpp"
#include "messages/codec_reader.hpp"

/// One value within a larger msgpack text: for the envelope, which packs several. Compiled for what codec.cpp lists;
/// elsewhere the definitions in messages/codec_templates.hpp serve. Internal to the codec.
namespace troupe::messages::detail {

template <class T>
void write_value(Packer& packer, const T& value);

/// False after an error, whose path then begins with the struct's name.
template <class T>
bool read_value(Reader& reader, T& value);

}  // namespace troupe::messages::detail
