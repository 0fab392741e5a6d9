// The profiles that are known: those shipped in the program, and the administrator's, which come first.
import BlueZ
import Settings

#if canImport(Glibc)
import Glibc
#else
import Musl
#endif

/// All profiles by id.
public struct ProfileLibrary: Sendable {
    /// Profile files in the administrator's directory beyond this many are not read.
    public static let administratorFilesMax = 256

    /// The profiles in the order in which they are tried.
    public private(set) var profiles: [AccessoryProfile]

    /// A library of the given profiles; of two with the same id the later one counts.
    public init(_ profiles: [AccessoryProfile]) {
        var byID: [String: AccessoryProfile] = [:]
        for profile in profiles { byID[profile.id] = profile }
        self.profiles = byID.values.sorted { $0.id < $1.id }
    }

    /// The profile files in the program: name and contents.
    public static let shippedFiles: [(name: String, bytes: [UInt8])] = [
        ("aina-v2.toml", PackageResources.aina_v2_toml),
        ("anytone-elet.toml", PackageResources.anytone_elet_toml),
        ("micro-bit.toml", PackageResources.micro_bit_toml),
        ("ptt-z.toml", PackageResources.ptt_z_toml),
        ("td-q2l.toml", PackageResources.td_q2l_toml),
    ]

    /// Reads the shipped profiles, and the administrator's `*.toml` files in `directory`, which replace shipped ones
    /// with the same id.
    ///
    /// - Parameter directory: May be absent.
    /// - Returns: The library, and what is wrong with files that were left out. A bad file never disables the others.
    public static func load(directory: String?) -> (library: ProfileLibrary, problems: [SettingsProblem]) {
        var profiles: [AccessoryProfile] = []
        var problems: [SettingsProblem] = []
        func add(_ read: () throws(SettingsError) -> AccessoryProfile) {
            do throws(SettingsError) { profiles.append(try read()) } catch { problems += error.problems }
        }
        for file in shippedFiles {
            add { () throws(SettingsError) in try AccessoryProfile(bytes: file.bytes, file: file.name) }
        }
        if let directory {
            let (names, problem) = fileNames(in: directory)
            if let problem { problems.append(problem) }
            for name in names {
                let path = "\(directory)/\(name)"
                add { () throws(SettingsError) in
                    try AccessoryProfile(bytes: try SettingsFile.contents(of: path), file: path)
                }
            }
        }
        return (ProfileLibrary(profiles), problems)
    }

    /// The profile called `id`.
    public subscript(id: String) -> AccessoryProfile? { profiles.first { $0.id == id } }

    /// The profile of a device whose characteristics are known.
    ///
    /// - Parameters:
    ///   - names: All names the device has gone by; some devices lose theirs once connected.
    ///   - has: Whether the device has a characteristic in a service.
    public func profile(
        names: some Sequence<String>, has: (_ service: BluetoothUUID, _ characteristic: BluetoothUUID) -> Bool
    ) -> AccessoryProfile? {
        let fitting = profiles.filter { profile in
            profile.inputs.allSatisfy { $0.isOptional || has($0.service, $0.characteristic) }
        }
        return fitting.first { profile in names.contains { profile.matches(name: $0) } }
            ?? fitting.first { $0.serviceIdentifies }
    }

    /// The profile that a device probably has, from what it advertises; to be verified once it is connected.
    public func candidate(name: String?, services: some Collection<BluetoothUUID>) -> AccessoryProfile? {
        profiles.first { $0.matches(name: name) }
            ?? profiles.first { profile in
                profile.serviceIdentifies && profile.services.contains { services.contains($0) }
            }
    }

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
