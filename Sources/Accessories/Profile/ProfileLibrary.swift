// The profiles that are known: those shipped in the program, and the site's own, which come first.
import BlueZ
import Glibc
import Settings

/// All profiles by id.
public struct ProfileLibrary: Sendable {
    /// Profile files in the administrator's directory beyond this many are not read.
    public static let administratorFilesMax = 256

    /// The profiles in the order of their ids.
    public private(set) var profiles: [AccessoryProfile]
    /// The ids of those that are not shipped: the administrator's and the learned ones.
    public private(set) var siteIDs: Set<String> = []

    /// A library of the given profiles; of two with the same id the later one counts.
    public init(_ profiles: [AccessoryProfile]) {
        var byID: [String: AccessoryProfile] = [:]
        for profile in profiles { byID[profile.id] = profile }
        self.profiles = byID.values.sorted { $0.id < $1.id }
    }

    /// Adds one of the site's own, which is tried before all shipped ones. Replaces one with the same id.
    public mutating func add(_ profile: AccessoryProfile) {
        siteIDs.insert(profile.id)
        profiles.removeAll { $0.id == profile.id }
        profiles.insert(profile, at: profiles.firstIndex { $0.id > profile.id } ?? profiles.endIndex)
    }

    /// The profile called `id`.
    public subscript(id: String) -> AccessoryProfile? { profiles.first { $0.id == id } }

    // MARK: Reading

    /// Reads the shipped profiles, and the administrator's `*.toml` files in `directory`, which replace shipped ones
    /// with the same id and are tried before all shipped ones.
    ///
    /// - Parameter directory: May be absent.
    /// - Returns: The library, and what is wrong with files that were left out. A bad file never disables the others.
    public static func load(directory: String?) -> (library: ProfileLibrary, problems: [SettingsProblem]) {
        var (library, problems) = shipped
        if let directory {
            let (leftOut, problem) = library.add(filesIn: directory)
            if let problem { problems.append(problem) }
            problems += leftOut.flatMap(\.error.problems)
        }
        return (library, problems)
    }

    /// Adds the site's own profiles that are in the `*.toml` files of `directory`, which may be absent.
    ///
    /// - Parameter keepsOwn: Whether those stay that the site has already; else a file replaces the one of the same id.
    /// - Returns: The files that were left out, and why; what is wrong with the directory.
    package mutating func add(
        filesIn directory: String, keepsOwn: Bool = false
    ) -> (leftOut: [(file: String, error: SettingsError)], problem: SettingsProblem?) {
        let (names, problem) = Self.fileNames(in: directory)
        var leftOut: [(file: String, error: SettingsError)] = []
        for name in names {
            let file = "\(directory)/\(name)"
            do throws(SettingsError) {
                let profile = try AccessoryProfile(bytes: try SettingsFile.contents(of: file), file: file)
                if !keepsOwn || !siteIDs.contains(profile.id) { add(profile) }
            } catch {
                leftOut.append((file, error))
            }
        }
        return (leftOut, problem)
    }

    /// Read once, however many libraries are made of it.
    private static let shipped: (ProfileLibrary, [SettingsProblem]) = {
        var profiles: [AccessoryProfile] = []
        var problems: [SettingsProblem] = []
        for file in shippedFiles {
            do throws(SettingsError) {
                profiles.append(try AccessoryProfile(bytes: file.bytes, file: file.name))
            } catch {
                problems += error.problems
            }
        }
        return (ProfileLibrary(profiles), problems)
    }()

    /// The `.toml` files of a directory in the order of their names, as udev and systemd read theirs.
    private static func fileNames(in directory: String) -> (names: [String], problem: SettingsProblem?) {
        guard let handle = opendir(directory) else {
            if errno == ENOENT { return ([], nil) }
            let problem = SettingsProblem(
                file: directory, message: "cannot be read: \(String(cString: strerror(errno)))",
                advice: "let the daemon's user list it: chmod o+rx")
            return ([], problem)
        }
        defer { closedir(handle) }
        var names: [String] = []
        while let entry = readdir(handle) {
            let name = withUnsafeBytes(of: entry.pointee.d_name) { bytes in
                String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            if name.hasSuffix(".toml"), !name.hasPrefix(".") { names.append(name) }
        }
        names.sort()
        guard names.count > administratorFilesMax else { return (names, nil) }
        let problem = SettingsProblem(
            file: directory, message: "has \(names.count) profiles", advice: "\(administratorFilesMax) are the limit")
        return (Array(names.prefix(administratorFilesMax)), problem)
    }
}
