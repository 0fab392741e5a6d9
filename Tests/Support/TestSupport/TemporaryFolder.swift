// A folder that goes with the test.
import Glibc

/// A new folder under /tmp, removed with all that is in it when it is dropped.
public final class TemporaryFolder: Sendable {
    /// The folder could not be made.
    public struct Failure: Error {
        /// The errno value of mkdtemp(3).
        public let code: Int32
    }

    /// Where it is.
    public let path: String

    /// Makes it.
    public init() throws(Failure) {
        var template = Array("/tmp/pttd-test-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw Failure(code: errno) }
        path = String(decoding: template.dropLast().map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
    }

    deinit { _ = system("rm -rf \(path)") }

    /// The path of what has this name in it.
    public func file(_ name: String) -> String { path + "/" + name }

    /// What is in it, in the order of the names.
    public var names: [String] {
        guard let directory = opendir(path) else { return [] }
        defer { closedir(directory) }
        var names: [String] = []
        while let entry = readdir(directory) {
            let name = withUnsafeBytes(of: entry.pointee.d_name) {
                String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
            }
            if name != ".", name != ".." { names.append(name) }
        }
        return names.sorted()
    }
}
