// pttctl profile …: the profiles of accessories. It works without the daemon.
import Accessories
import ArgumentParser
import Settings
import Terminal

/// `pttctl profile`.
struct ProfileCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "profile", abstract: "Check and show the profiles that recognise accessories.",
        discussion:
            "A profile is a file; docs/profiles.md says how to write one. These commands work without the daemon.",
        subcommands: [ProfileList.self, ProfileShow.self, ProfileCheck.self], defaultSubcommand: ProfileList.self)
}

/// Where the site's own profiles are.
struct ProfilesOptions: ParsableArguments {
    @Option(help: "The directory of the site's own profiles.", completion: .directory)
    var profiles = AccessorySettings.profilesDirectory

    /// The shipped profiles and the site's own. Invalid files are reported on standard error and left out.
    func library() -> ProfileLibrary {
        let (library, problems) = ProfileLibrary.load(directory: profiles)
        for problem in problems { Console.complain(problem.description) }
        return library
    }
}

/// `pttctl profile list`.
struct ProfileList: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "List the shipped profiles and the site's own.")

    @OptionGroup var options: ProfilesOptions
    @Flag(help: "Print JSON, for scripts.") var json = false

    func run() throws {
        let library = options.library()
        let entries = library.profiles.map { ProfileEntry($0, isOfSite: library.siteIDs.contains($0.id)) }
        if json { return Console.say(try jsonText(entries)) }
        let idWidth = entries.map(\.id.columns).max() ?? 0
        let transportWidth = entries.map(\.transport.columns).max() ?? 0
        for entry in entries {
            let notes = entry.notes.isEmpty ? "" : "  [\(entry.notes.joined(separator: ", "))]"
            Console.say(
                "\(entry.id.fitted(idWidth))  \(entry.transport.fitted(transportWidth))  \(entry.title)\(notes)")
        }
    }
}

/// A profile in a list.
struct ProfileEntry: Encodable {
    var id: String
    var title: String
    var transport: String
    var confidence: String
    var experimental: Bool
    /// Only used where it is named.
    var explicit: Bool
    /// Why it is refused; nil: it is not.
    var refusal: String?
    /// "shipped" or "site".
    var origin: String

    init(_ profile: AccessoryProfile, isOfSite: Bool) {
        id = profile.id
        title = profile.title
        transport = profile.transport.rawValue
        confidence = profile.confidence.rawValue
        experimental = profile.isExperimental
        explicit = profile.isExplicitOnly
        refusal = profile.refusal
        origin = isOfSite ? "site" : "shipped"
    }

    var notes: [String] {
        [
            origin == "site" ? "site" : nil, refusal == nil ? nil : "refused", explicit ? "only where named" : nil,
            experimental ? "experimental" : nil,
        ].compactMap { $0 }
    }
}

/// `pttctl profile show`.
struct ProfileShow: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "show", abstract: "Show what a profile says, or its file.")

    @OptionGroup var options: ProfilesOptions
    @Flag(help: "Print the file, to copy and change it.") var toml = false
    @Argument(help: "The profile's id.") var id: String

    func run() throws {
        let library = options.library()
        guard let profile = library[id] else {
            let near = nearestName(to: id, among: library.profiles.map(\.id)).map { "; did you mean '\($0)'?" } ?? ";"
            Console.complain("pttctl: there is no profile '\(id)'\(near) 'pttctl profile list' lists all")
            throw ExitCode.failure
        }
        guard toml else { return tell(profile) }
        let shipped = ProfileLibrary.shippedFiles.first { $0.name == "\(id).toml" }
        if let shipped, !library.siteIDs.contains(id) {
            Console.say(String(decoding: shipped.bytes.dropLast(), as: UTF8.self))
        } else {
            Console.say(String(profile.text.dropLast()))
        }
    }
}

/// `pttctl profile check`.
struct ProfileCheck: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "check", abstract: "Check profile files, and show what they say.",
        discussion: "Problems are reported as FILE:LINE:COLUMN. Exit status: 1 when any file is wrong.")

    @Argument(help: "Profile files.", completion: .file(extensions: ["toml"])) var files: [String]

    func run() throws {
        var isRight = true
        var ids: [String: String] = [:]
        for file in files {
            do throws(SettingsError) {
                let profile = try AccessoryProfile(bytes: try SettingsFile.contents(of: file), file: file)
                if let other = ids.updateValue(file, forKey: profile.id) {
                    isRight = false
                    Console.complain(
                        "\(file): id: \"\(profile.id)\" is also that of \(other); the later file replaces it")
                }
                if let shipped = Self.shipped[profile.id] {
                    Console.say("\(file): replaces the shipped profile \"\(shipped)\"")
                }
                tell(profile)
            } catch {
                isRight = false
                Console.complain(error.description)
            }
        }
        if !isRight { throw ExitCode.failure }
    }

    private static let shipped: [String: String] = Dictionary(
        uniqueKeysWithValues: ProfileLibrary.load(directory: nil).library.profiles.map { ($0.id, $0.title) })
}

/// What a profile says, its first line as the heading.
private func tell(_ profile: AccessoryProfile) {
    for (number, line) in profile.summary.enumerated() { Console.say(number == 0 ? line : "    \(line)") }
    for source in profile.sources { Console.say("    source: \(source)") }
}
