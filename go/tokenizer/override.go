package tokenizer

import "fmt"

// SetChatTemplate puts a template in the place of the model's own ones. Nothing
// else may use t meanwhile.
func (t *Tokenizer) SetChatTemplate(source string) error {
	templates, err := compileTemplates(map[string]string{"default": source})
	if err != nil {
		return fmt.Errorf("tokenizer: %w", err)
	}
	t.templates = templates
	return nil
}
