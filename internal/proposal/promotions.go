package proposal

import (
	"github.com/tenurehq/tenure/acquisition"
	"github.com/tenurehq/tenure/membership"
	"github.com/tenurehq/tenure/routing"
)

// messagePromotions follows acquisition's kinds of messages.
const messagePromotions = acquisition.MessageAnswer + 1

// Promotions has members tell one another which databases' successors they have reached,
// at once and from time to time again, so that nobody goes on with one that was replaced.
// It must be called before c and r start.
func Promotions(c *membership.Cluster, r *routing.Router) {
	c.Exchange(r.Promotions, r.Hear)
	c.Handle(messagePromotions, r.Hear)
	r.Spread(func(part []byte) {
		for _, m := range c.Members() {
			if m.Name != c.Self().Name {
				_ = c.Send(m.Name, messagePromotions, part) // whom it does not reach hears of it later
			}
		}
	})
}
