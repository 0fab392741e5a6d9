// All fuzzers in one program, chosen by name. Built by Tests/Fuzz/run, with libFuzzer and the address sanitizer in it.
//
//   fuzz --list                     the names, each with the most bytes of an input
//   fuzz --seeds NAME DIRECTORY     writes what the fuzzer begins with into files, one for each input
//   fuzz --unpack FILE DIRECTORY    the same with the lines of a corpus: each an input in hexadecimal
//   fuzz --pack DIRECTORY           prints the files of a directory as such lines, the shortest first, no more than a corpus may have
//   fuzz NAME [libFuzzer's options, directories and files]
import CLibFuzzer
import Cryptography
import Glibc

/// The fuzzer that runs, for libFuzzer's callback, which has no context. Set once, before anything runs.
nonisolated(unsafe) private var chosen = Fuzzer(name: "", maximum: 0, seeds: { [] }, body: { _ in })

@main
enum Fuzz {
    static let all =
        mediaFuzzers + messageFuzzers + coreFuzzers + fileFuzzers + configurationFuzzers + accessoryFuzzers + busFuzzers
        + textFuzzers + apiFuzzers + clusterFuzzers + nearbyFuzzers + bluetoothFuzzers + webLinkFuzzers

    static func main() {
        let arguments = CommandLine.arguments
        switch arguments.dropFirst().first {
        case "--list": for fuzzer in all { print(fuzzer.name, fuzzer.maximum) }
        case "--seeds" where arguments.count == 4:
            write(named(arguments[2]).seeds(), "seed", into: arguments[3])
        case "--unpack" where arguments.count == 4: unpack(arguments[2], into: arguments[3])
        case "--pack" where arguments.count == 3: pack(arguments[2])
        case let name? where !name.hasPrefix("-"): run(named(name), Array(arguments.dropFirst(2)))
        default:
            // To reduce a corpus, libFuzzer starts this program again, with options of its own only.
            if let name = getenv(nameVariable) { run(named(String(cString: name)), Array(arguments.dropFirst())) }
            fail("say which: \(all.map(\.name).joined(separator: " "))")
        }
    }

    private static func named(_ name: String) -> Fuzzer {
        guard let fuzzer = all.first(where: { $0.name == name }) else { fail("there is no fuzzer \"\(name)\"") }
        return fuzzer
    }

    private static let nameVariable = "PTTD_FUZZER"

    private static func run(_ fuzzer: Fuzzer, _ options: [String]) -> Never {
        chosen = fuzzer
        setenv(nameVariable, fuzzer.name, 1)
        // libFuzzer keeps pointers to its arguments.
        var words: [UnsafeMutablePointer<CChar>?] =
            ([CommandLine.arguments[0]] + options).map { strdup($0) } + [nil]
        var count = Int32(words.count - 1)
        let status = words.withUnsafeMutableBufferPointer { buffer in
            var start = buffer.baseAddress
            return LLVMFuzzerRunDriver(&count, &start) { data, size in
                chosen.body(Array(UnsafeBufferPointer(start: data, count: size)))
                return 0
            }
        }
        exit(status)
    }

    // MARK: Corpora

    /// A corpus in the repository has no more bytes.
    private static let corpusMaximum = 16_384

    private static func write(_ inputs: [[UInt8]], _ name: String, into directory: String) {
        for (number, bytes) in inputs.enumerated() {
            guard let file = fopen("\(directory)/\(name)-\(number)", "w") else { fail("cannot write to \(directory)") }
            let written = fwrite(bytes, 1, bytes.count, file)
            guard fclose(file) == 0, written == bytes.count else { fail("cannot write to \(directory)") }
        }
    }

    private static func read(_ path: String) -> [UInt8] {
        guard let file = fopen(path, "r") else { fail("cannot read \(path)") }
        defer { fclose(file) }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = fread(&buffer, 1, buffer.count, file)
            guard count > 0 else { return bytes }
            bytes += buffer.prefix(count)
        }
    }

    private static func unpack(_ path: String, into directory: String) {
        let lines = String(decoding: read(path), as: UTF8.self).split(separator: "\n")
        write(
            lines.map { line in
                guard let bytes = Hexadecimal.decode(line) else { fail("\(path): not hexadecimal: \(line.prefix(40))") }
                return bytes
            }, "corpus", into: directory)
    }

    private static func pack(_ directory: String) {
        guard let stream = opendir(directory) else { fail("cannot read \(directory)") }
        defer { closedir(stream) }
        var inputs: [[UInt8]] = []
        while let entry = readdir(stream) {
            let name = withUnsafeBytes(of: &entry.pointee.d_name) {
                String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
            }
            if !name.hasPrefix(".") { inputs.append(read("\(directory)/\(name)")) }
        }
        var total = 0
        for input in inputs.sorted(by: { ($0.count, Hexadecimal.encode($0)) < ($1.count, Hexadecimal.encode($1)) }) {
            total += input.count
            guard total <= corpusMaximum else { return }
            if !input.isEmpty { print(Hexadecimal.encode(input)) }
        }
    }

    private static func fail(_ text: String) -> Never {
        let line = Array("fuzz: \(text)\n".utf8)
        _ = Glibc.write(STDERR_FILENO, line, line.count)
        exit(2)
    }
}
