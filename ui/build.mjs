// Builds the page: src/ becomes the files of src/headrace/dashboard/static, which are committed.
// `sources.json` there has the checksum of what they were built from; a test compares it with the sources.
import { createHash } from "node:crypto";
import { copyFileSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = fileURLToPath(new URL(".", import.meta.url));
const target = join(here, "../src/headrace/dashboard/static");

const built = await build({
  entryPoints: { app: join(here, "src/main.js"), widget: join(here, "src/widget.js") },
  outdir: target,
  bundle: true,
  format: "esm",
  minify: true,
  target: ["chrome110", "firefox115", "safari16"],
  legalComments: "inline",
  logLevel: "warning",
  metafile: true,
});
copyFileSync(join(here, "src/index.html"), join(target, "index.html"));
copyFileSync(join(here, "src/icon.svg"), join(target, "icon.svg"));

// The licences of the packages that are in the bundles.
const packages = new Set(
  Object.keys(built.metafile.inputs)
    .map((file) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(file.replaceAll("\\", "/"))?.[1])
    .filter(Boolean),
);
const licences = [...packages].sort().map((name) => {
  const folder = join(here, "node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  return `${name} ${version} (${license})\n\n${file ? readFileSync(join(folder, file), "utf8").trim() : "no file"}\n`;
});
writeFileSync(join(target, "licences.txt"), licences.join(`\n${"-".repeat(100)}\n\n`));

const files = readdirSync(join(here, "src"), { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map((entry) => join(entry.parentPath ?? entry.path, entry.name));
files.push(join(here, "package-lock.json"), join(here, "build.mjs"));
const sum = createHash("sha256");
for (const file of files.map((path) => relative(here, path).replaceAll("\\", "/")).sort()) {
  sum.update(file + "\0").update(readFileSync(join(here, file))).update("\0");
}
writeFileSync(join(target, "sources.json"), JSON.stringify({ sha256: sum.digest("hex") }) + "\n");
