// Package weights turns checkpoints on disk into named tensors, and fetches models by name.
//
// A checkpoint is a GGUF file or a Hugging Face directory of safetensors files. Either is memory-mapped read-only and
// its headers are checked whole when it is opened, every count and size against the size of the file before anything
// of that size is allocated. Tensors carry Hugging Face names in both cases and are decoded row by row, when asked.
package weights
