//go:build !linux

package tokenizer

func giveBack() {}
