// The version of these programs. The one place where it is written: Makefile, packages and the tests of both read it here.
import CBuild

/// Which version of pttd, pttctl and pttrelay this is.
public enum Version {
    /// The version's number, by Semantic Versioning; CHANGELOG.md tells what is in it.
    public static let number = "0.1.0"

    /// The commit that was built, `-modified` behind it where files differed from it; nil where the build did not say (a plain
    /// `swift build`).
    public static let commit: String? = {
        let text = String(cString: ptt_build_commit())
        return text.isEmpty ? nil : text
    }()

    /// Number and commit, for `--version`.
    public static var text: String { commit.map { "\(number) (commit \($0))" } ?? number }
}
