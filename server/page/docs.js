// The OpenAPI document as a page.

const make = (name, text, ...children) => {
  const node = document.createElement(name);
  if (text) node.textContent = text;
  node.append(...children);
  return node;
};
const METHODS = ["get", "head", "post", "put", "patch", "delete"];
function typeOf(schema, all, depth) {
  if (!schema) return "";
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    return depth > 3 ? name : typeOf(all[name], all, depth + 1);
  }
  const options = schema.oneOf || schema.anyOf;
  if (options) return options.map(each => typeOf(each, all, depth)).join(" | ");
  const type = [].concat(schema.type || "any").join(" | ");
  if (schema.properties) {
    const pad = "  ".repeat(depth + 1);
    const lines = Object.entries(schema.properties).map(([name, each]) => {
      const about = each.description ? "  // " + each.description.split("\n")[0] : "";
      const must = (schema.required || []).includes(name) ? "" : "?";
      return `${pad}${name}${must}: ${typeOf(each, all, depth + 1)}${about}`;
    });
    return `{\n${lines.join("\n")}\n${"  ".repeat(depth)}}`;
  }
  if (schema.items) return `[${typeOf(schema.items, all, depth)}]`;
  return type;
}
function bodyOf(title, content, all) {
  return Object.entries(content || {}).map(([media, each]) =>
    make("div", "", make("p", `${title} ${media}`), make("pre", typeOf(each.schema, all, 0) || "bytes")));
}
function operation(method, path, described, all) {
  const inside = make("div");
  const [, ...rest] = (described.description || "").split("\n");
  if (rest.length) inside.append(make("p", rest.join(" ")));
  if (described.parameters && described.parameters.length) {
    const table = make("table");
    for (const each of described.parameters) {
      table.append(make("tr", "", make("td", "", make("code", each.name)), make("th", each.in),
        make("th", each.required ? "required" : ""), make("td", each.description || "")));
    }
    inside.append(table);
  }
  if (described.requestBody) inside.append(...bodyOf("request body", described.requestBody.content, all));
  for (const [status, response] of Object.entries(described.responses || {})) {
    if (status < "300") inside.append(...bodyOf(`${status}: response body`, response.content, all));
    if (!response.content || status < "300") inside.append(make("p", `${status} ${response.description || ""}`));
  }
  const refusals = Object.keys(described.responses || {}).filter(status => status >= "400");
  if (refusals.length) inside.append(make("p", `problem documents: ${refusals.join(", ")}`));
  const summary = make("summary", "", make("b", method.toUpperCase()), make("code", path),
    make("span", described.summary || (described.description || "").split("\n")[0]));
  return make("details", "", summary, inside);
}
fetch("openapi.json").then(response => response.json()).then(api => {
  document.getElementById("about").prepend(`${api.info.title} ${api.info.version}: ${api.info.description} — `);
  const all = (api.components || {}).schemas || {};
  for (const tag of api.tags) {
    const section = make("section", "", make("h2", tag.name));
    for (const [path, item] of Object.entries(api.paths)) {
      for (const method of METHODS) {
        const described = item[method];
        if (described && (described.tags || []).includes(tag.name)) section.append(operation(method, path, described, all));
      }
    }
    document.getElementById("paths").append(section);
  }
}).catch(error => { document.getElementById("about").textContent = "no response: " + error; });
