// Package grammar tells which tokens may come next when a request's output has
// to follow a grammar: a JSON schema, a regular expression, rules in EBNF, or
// text with tags.
//
// The grammars themselves are llguidance's, a Rust library behind its C
// interface. A Compiler holds the vocabulary; it compiles each grammar once and
// keeps the result for the next request. A matcher follows the output of one
// request. Tokens that a grammar forces are the tokenizer's own choice for the
// forced text, as if the model had written it.
package grammar
