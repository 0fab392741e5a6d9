// The profile files in the program, each named once.

extension ProfileLibrary {
    /// The profile files in the program: name and contents.
    public static let shippedFiles: [(name: String, bytes: [UInt8])] = [
        PackageResources.aina_v2_toml,
        PackageResources.anytone_elet_toml,
        PackageResources.micro_bit_toml,
        PackageResources.ptt_z_toml,
        PackageResources.td_q2l_toml,
    ].map { (name: fileName($0), bytes: $0) }

    /// A file is called as its profile: `id = "ptt-z"` is in ptt-z.toml.
    private static func fileName(_ bytes: [UInt8]) -> String {
        let start = Array("id = \"".utf8)
        let line = bytes.split(separator: UInt8(ascii: "\n")).first { $0.starts(with: start) } ?? []
        return String(decoding: line.dropFirst(start.count).prefix { $0 != UInt8(ascii: "\"") }, as: UTF8.self) + ".toml"
    }
}
