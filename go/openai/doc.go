// Package openai holds the wire format of OpenAI's HTTP API, and of sglang's own,
// as far as the server speaks them: request parsing and validation, response
// types, the error object, and server-sent events. It knows nothing of the engine, so that
// clients (the bench tools) can use it too.
//
// # How a request body is read
//
// ParseChat follows OpenAI's rules and settles what they leave open; so do
// ParseCompletion and, with sglang's names, ParseGenerate:
//
//   - Names are matched exactly: "MAX_TOKENS" is an unknown field. Unknown fields
//     are ignored. Of a name given twice, the last one counts.
//   - null means that the field is absent. An integer may be written 16.0, but
//     not "16"; one beyond the range of a 32-bit integer counts as its limit.
//   - A field that would change the result and that the server can't honour is an
//     error, unless its value asks for nothing (0, false, [], "auto" and the like).
//   - Invalid UTF-8 and lone surrogates become U+FFFD.
//   - Values nest at most MaxDepth deep, which leaves the templates' walkers a
//     bounded stack.
//   - The role "developer" is OpenAI's newer name for "system", and is read as such.
//   - max_completion_tokens wins over max_tokens. Without both, a chat may fill the
//     room left in the context, a completion has 16 tokens, /generate 128.
//   - stop is a string or a list of at most 16, none of them empty. The text ends
//     right before the stop string that is complete first.
//   - With n above 1 and a seed, the first choice is that of n = 1, and the others
//     have seeds derived from it.
//   - A prompt with several choices counts once in the usage.
//   - What a request doesn't say of sampling is up to the caller of ParseChat;
//     DefaultSampling is OpenAI's.
//   - The tools are shown to the model through its chat template, unless tool_choice
//     is "none". A call that the model makes arrives as text.
//   - Instead of messages, "prompt" takes a text that is used without a chat
//     template, as mini-sglang does.
//   - A body of /generate with "prompt" and neither "text" nor "input_ids" is
//     mini-sglang's form.
package openai
