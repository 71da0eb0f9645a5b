package api

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tenurehq/tenure/operate"
)

// declare adds to the document the rules that the requests' types cannot express.
func declare(document *huma.OpenAPI) {
	one := 1
	schemas := document.Components.Schemas.Map()
	for _, s := range schemas {
		for _, p := range s.Properties {
			p.Nullable = false // a field that is meant to be left out is left out, and no answer has null for a list
		}
	}
	for _, item := range document.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Put, item.Post, item.Patch, item.Delete} {
			if op == nil {
				continue
			}
			for _, p := range op.Parameters {
				if p.Schema.Nullable = false; p.Schema.Items != nil {
					p.Schema.Items.MinLength = &one
				} else if p.Schema.Type == huma.TypeString && !isPlace(p.Name) {
					p.Schema.MinLength = &one
				}
			}
		}
	}
	for name, fields := range map[string][]string{
		"ChangeDeadInBody":  {"pool", "tenant", "kind", "error", "group", "tag", "correlation_id", "before"},
		"CancelManyInBody":  {"pool", "tenant", "kind", "queue", "correlation_id", "state", "tag"},
		"SuspendManyInBody": {"pool", "tenant", "kind", "queue", "correlation_id", "state", "tag"},
		"RetryManyInBody":   {"pool", "tenant", "kind", "queue", "correlation_id", "state", "tag"},
		"Chosen":            {"pool", "tenant", "kind", "queue", "correlation_id", "tag"},
	} {
		for _, field := range fields {
			if p := schemas[name].Properties[field]; p.Format == "" && len(p.Enum) == 0 {
				p.MinLength = &one
			}
		}
		rule(schemas[name], isTrue("all"), rules{"not": oneOf(fields...)}, oneOf(fields...))
		schemas[name].Extensions["not"] = rules{"properties": rules{"all_tenants": rules{"const": true}}, "required": []string{"all_tenants", "tenant"}}
	}
	schemas["AcquireInBody"].Properties["tenants"].Items.MinLength = &one
	for _, name := range []string{"NewJob", "JobSpec"} {
		schemas[name].Properties["after"].Items.Pattern = "^[1-9][0-9]{0,18}$"
	}
	for _, p := range document.Paths["/api/v1/jobs"].Get.Parameters {
		if p.Name == "state" {
			p.Schema.Extensions = rules{"enum": operate.States}
		}
	}
	rule(schemas["SetLimitInBody"], isTrue("every_tenant"), rules{"not": oneOf("tenant")}, oneOf("tenant"))
	for _, s := range schemas {
		s.PrecomputeMessages() // of what is new
	}
	schemas["ChangeInBody"].Extensions = rules{"minProperties": 1}
	job := schemas["NewJob"]
	rule(job, rules{"required": []string{"on_failure"}}, rules{"required": []string{"after"}, "properties": rules{"after": rules{"minItems": 1}}}, nil)
	job.Extensions["not"] = rules{"required": []string{"at", "delay_ms"}, "properties": rules{"delay_ms": rules{"minimum": 1}}}
	job.Extensions["dependentRequired"] = rules{"unique_for": []string{"unique_key"}, "skip_retrying": []string{"exclusive_key"}}
}

// rules are keywords of JSON Schema which the validator leaves to the operations.
type rules = map[string]any

// rule says what holds for those that condition is true of, and, unless that is nil, for the others.
func rule(s *huma.Schema, condition, then, otherwise rules) {
	s.Extensions = rules{"if": condition, "then": then}
	if otherwise != nil {
		s.Extensions["else"] = otherwise
	}
}

func isTrue(field string) rules {
	return rules{"properties": rules{field: rules{"const": true}}, "required": []string{field}}
}

// oneOf is that one of these fields is there, at least.
func oneOf(fields ...string) rules {
	var all []rules
	for _, field := range fields {
		all = append(all, rules{"required": []string{field}})
	}
	return rules{"anyOf": all}
}

// problemResponse is what all refusals are.
func problemResponse(api huma.API) *huma.Response {
	schema := api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[huma.ErrorModel](), true, "ErrorModel")
	return &huma.Response{Description: "Error", Content: map[string]*huma.MediaType{"application/problem+json": {Schema: schema}}}
}

// streamSchema describes a stream of events as the text that it is: what is generated from the document could not read
// it as an object.
func streamSchema(api huma.API, name string, data reflect.Type) *huma.Schema {
	of := api.OpenAPI().Components.Schemas.Schema(data, true, name)
	return &huma.Schema{Type: huma.TypeString, Description: "server-sent events named " + name + ", the data of which are JSON as " + of.Ref + " has it"}
}
