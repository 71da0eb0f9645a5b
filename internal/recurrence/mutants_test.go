package recurrence

import "github.com/tenurehq/tenure/internal/mutant"

var _ = []mutant.Mutant{
	{
		Promise: "schedules", Name: "what a clock shows twice is due twice",
		File: "internal/recurrence/cron.go", Func: "nextOnClocks",
		Old:  "before > offset && shown.Before(changed)",
		New:  "before > offset && shown.Before(changed) && false",
		Test: "TestCronIsDueOncePerMinuteOfTheClock",
	},
	{
		Promise: "schedules", Name: "what a clock skips is never due",
		File: "internal/recurrence/cron.go", Func: "nextOnClocks",
		Old:  "skipped = next.Add(-before)",
		New:  "",
		Test: "TestCronWhereClocksChange",
	},
	{
		Promise: "schedules", Name: "both days have to be right",
		File: "internal/recurrence/cron.go",
		Old:  " | cron.DowOrDom)",
		New:  ")",
		Test: "TestCronWhereClocksChange",
	},
	{
		Promise: "schedules", Name: "a short month is left out",
		File: "internal/recurrence/repeat.go", Func: "(period).after",
		Old:  "day = min(day, first.AddDate(0, 1, -1).Day())",
		New:  "",
		Test: "TestRepeatsComeInOrderAndEnd",
	},
	{
		Promise: "schedules", Name: "runs that were missed are all made although one is to stand for them",
		File: "internal/recurrence/missed.go", Func: "(Rule).Due",
		Old:  "next, _ = r.Next(now)",
		New:  "next, _ = r.Next(at)",
		Test: "TestWhatBecomesOfMissedRuns",
	},
}
