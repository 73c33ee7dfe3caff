// Every name in the modules of the page is defined and used. `PAGE_FOLDER` has the modules,
// `PAGE_MODULES` TypeScript, which reads JavaScript as well.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

const ts = createRequire(`${process.env.PAGE_MODULES}/`)("typescript");
const folder = process.env.PAGE_FOLDER;
const files = readdirSync(folder).filter(name => name.endsWith(".js")).map(name => join(folder, name));
const program = ts.createProgram(files, {
  allowJs: true, checkJs: true, noEmit: true, skipLibCheck: true, noUnusedLocals: true, noUnusedParameters: true,
  target: ts.ScriptTarget.ESNext, module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler,
});
/** Not found, not exported, declared twice, unused. What types are, the modules do not say. */
const CODES = [2304, 2305, 2307, 2451, 2552, 2614, 2724, 6133, 6138, 6192, 6196, 6198];
const found = ts.getPreEmitDiagnostics(program)
  .filter(each => CODES.includes(each.code) || each.code < 2000)
  .map(each => `${each.file?.fileName}: ${ts.flattenDiagnosticMessageText(each.messageText, "\n")}`);

const texts = files.map(file => readFileSync(file, "utf8"));
const imported = new Set(texts.flatMap(text => [...text.matchAll(/import \{([^}]*)\}/g)].flatMap(([, names]) => names.split(",").map(name => name.trim()))));
for (const [at, text] of texts.entries()) {
  for (const [, name] of text.matchAll(/^export (?:async )?(?:function|const|class) (\w+)/gm)) {
    // What only tests import is used as well in its module.
    if (!imported.has(name) && text.split(new RegExp(`\\b${name}\\b`)).length < 3) found.push(`${files[at]}: ${name} is exported and not used`);
  }
}
assert.deepEqual(found, []);
