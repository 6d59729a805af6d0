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
//   - At most one field gives a grammar: response_format, sglang's json_schema, regex,
//     ebnf and structural_tag, vLLM's guided_json, guided_regex, guided_grammar and
//     guided_choice. It binds with and without strict.
//   - What a request doesn't say of sampling is up to the caller of ParseChat;
//     DefaultSampling is OpenAI's.
//   - The tools are shown to the model through its chat template, unless tool_choice
//     is "none". The arguments of calls in messages, which are strings, reach the
//     template as JSON values if they are JSON objects.
//   - tool_choice "required", or that of a function, has a grammar, so it can't be given
//     together with another one.
//   - thinking_budget stands for chat_template_kwargs.thinking_budget, too.
//   - Instead of messages, "prompt" takes a text that is used without a chat
//     template, as mini-sglang does.
//   - A body of /generate with "prompt" and neither "text" nor "input_ids" is
//     mini-sglang's form.
//
// # WebSocket
//
// Every message is one JSON object in a text frame, with the version "v" and a
// "type". Servers may add members, so readers must skip those that they don't
// know; what exists keeps its meaning while "v" stays.
//
// At /ws/generate a client sends SocketCommand: "start" with an id of its choice,
// an API and the body that this API takes over HTTP, or "abort" with the id of a
// request that it started. Several requests, up to a limit, may run at once. It
// gets SocketEvent:
//
//	start   the request runs; answers a "start"
//	token   one chunk, as the HTTP API would stream it: one for each token, and
//	        at the end of each choice one that has its finish_reason
//	finish  the request has ended, as it should or by an "abort"
//	error   the request has failed
//	reject  a command was not carried out; nothing follows
//
// Each "start" command is answered by "start" or "reject"; after "start" there is
// exactly one "finish" or "error", unless the connection breaks. The events of a
// request are numbered 0, 1, 2, …, without a gap. A request's stream is always
// sent as it comes, whatever its body says of "stream". An id may be used again
// after its end. To abort what has just ended is no mistake, and not answered.
//
// At /ws/stats the first message is StatsHello, with the ServerStats of the last
// minutes; then one ServerStats comes each second. A reader that is too slow misses
// some. What the client sends is not looked at.
//
// An API key comes as the header Authorization: Bearer KEY. Browsers can't set it,
// so it may also come in Sec-WebSocket-Protocol, which unlike a URL is not logged:
//
//	new WebSocket(url, ["minisgl.v1", "minisgl.key." + base64url(key)])
//
// Pages of other origins are refused unless the server allows theirs. The server
// pings, and ends a connection whose client answers nothing; one whose client
// doesn't read is ended, too, and its requests with it. At shutdown the running
// requests may end, then the server closes with code 1001.
package openai
