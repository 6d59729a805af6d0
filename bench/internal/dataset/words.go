package dataset

import (
	"hash/fnv"
	"math/rand/v2"
	"strings"
)

// common are words that are one token each, with the space before them, in the
// vocabularies of common models. Prompts are built of them where there is no
// tokenizer to decode ids.
var common = strings.Fields(`about above after again air all along also always and animal another answer any around
away back ball bank bear because bed before began below best better between big bird black blue boat body book both bottom
box boy bread break bring brother build busy call came camp car care carry case cat center certain change check child city
class clean clear close cold color come common cook cool corn could country course cover cross cut dark day deep door down
draw dream dress drink drive dry each early earth east easy eat edge egg end enough equal even evening ever every eye face
fact fall family far farm fast father feel feet few field fill final find fine fire first fish five floor fly follow food
foot force form found four free fresh friend from front full game garden gave girl give glass gold good grass great green
grew ground group grow half hand happy hard head hear heart heat heavy help here high hill hold home horse hot hour house
hundred ice idea inch island just keep kind king knew land large last late laugh law lead learn leave left less letter life
light like line list little live long look lost low main make man many map mark mean measure milk mind mine minute miss
money month moon more morning most mother mountain mouth move much music name near need never new next night noon north
note nothing notice number ocean off often oil old once one only open order other over own page paper park part pass past
pattern people piece place plain plan plane plant play point poor power press problem pull push question quick quiet race
rain reach read ready real reason red rest right ring river road rock room round rule run safe said sail salt same sand
save school sea second seed seem sell send set seven shape sharp ship shoe shop short should show side silver simple sing
sister sit six size skin sky sleep slow small snow soft soil some song soon sound south space speak speed spell spring
square stand star start state stay step still stone stood stop store story street strong study such sugar summer sun sure
table tail take talk tall teach team tell ten test thank their them then there thick thing think third this those though
thought thousand three through time tiny together told tone took top touch toward town track trade train tree trip true try
turn twenty two under unit until use valley very view voice wait walk wall want warm watch water wave way wear weather week
weight well went west what wheel when where which while white whole why wide wild will wind window winter wish with woman
wonder wood word work world would write year yellow yes yet young`)

// wordsOf writes ids as common words.
func wordsOf(ids []int32) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = common[int(id)%len(common)]
	}
	return strings.Join(words, " ")
}

// randomIDs returns n ids below vocab that depend on the key alone.
func randomIDs(key string, vocab, n int) []int32 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(key)) // never fails
	rng := rand.New(rand.NewPCG(hash.Sum64(), uint64(vocab)))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = rng.Int32N(int32(vocab))
	}
	return ids
}
